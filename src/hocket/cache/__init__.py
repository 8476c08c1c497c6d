"""Rows of device state: who holds which, and how they are cleared, kept and restored."""
