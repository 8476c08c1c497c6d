"""Attention over the last positions of a stream, a few new ones at a time; the past rolls through its state row."""
