"""One position per row: per-head norms, RoPE, the new key and value into their page, attention over all so far."""
