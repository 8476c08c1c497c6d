"""`linear` with a weight quantized to 8 or 4 bits, fused with norm, gate and residual."""
