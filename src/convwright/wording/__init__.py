"""Texts that several packages print: problems in short, conditions, progress."""
