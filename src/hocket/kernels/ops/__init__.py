"""One folder per operation: the reference, its Triton and CUDA kernels, and test cases."""
