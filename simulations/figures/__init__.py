"""Figures, drawn without a display; matplotlib loads when one is drawn."""
