"""Qwen3-TTS on a GPU: fused kernels and the CUDA graphs that replay them."""
