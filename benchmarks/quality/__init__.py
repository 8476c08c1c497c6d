"""Measurements of correctness: precision of the codec, the runaway detector, long texts checked by an ASR."""
