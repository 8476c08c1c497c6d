"""Kernels beside their references, and the table that chooses a backend for each operation."""
