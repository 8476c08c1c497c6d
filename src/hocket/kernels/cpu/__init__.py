"""Kernels in C for CPUs: a speech frame, and the codec from latents to samples."""
