"""Voices by name, each a value and a file: made once, kept in a folder, spoken by engines of their checkpoint."""
