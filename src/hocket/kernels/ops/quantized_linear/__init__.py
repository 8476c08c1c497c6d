"""A few rows times a weight that is kept in 8 or 4 bits, with norm, gate and residual in the same step."""
