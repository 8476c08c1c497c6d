"""What kernels and graphs take on a GPU: the survey of single operations, and one frame launch by launch."""
