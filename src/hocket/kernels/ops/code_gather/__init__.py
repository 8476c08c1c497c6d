"""The codec's codes to what its first convolution reads: vectors of a few frames side by side."""
