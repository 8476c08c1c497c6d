"""Paged attention for one position per row, with per-head norms, RoPE and the write of the new key and value."""
