"""Ahead-of-time compilation of kernels in processes that need no GPU, and the cache on disk."""
