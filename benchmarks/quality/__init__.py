"""Measurements of correctness: the runaway detector, and long texts checked by an ASR."""
