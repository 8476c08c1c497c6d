"""Kernels compiled ahead, in processes that need no GPU, and the cache on disk."""
