"""Text and tables for people, imported by every layer and importing none."""
