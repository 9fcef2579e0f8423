"""Audits: the installed mechanisms run end to end against worst-case neighbours, and what that proves of epsilon."""
