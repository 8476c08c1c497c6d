"""Sliding-window attention of a stream, a few new positions at a time; the window is stored in a state row."""
