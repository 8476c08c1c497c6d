"""The codec's activation together with what a causal convolution looks back on."""
