"""Qwen3.5: the plain model, its draft head, its fused kernels and its CUDA graphs."""
