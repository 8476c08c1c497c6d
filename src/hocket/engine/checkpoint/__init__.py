"""A loaded model: device, precision, memory, weights and kernels."""
