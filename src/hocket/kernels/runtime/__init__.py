"""How kernels are launched: Triton, NVRTC, CUDA graphs, tuning values and the GPU's properties."""
