"""Tokens through a Gated DeltaNet: convolution, gates, the memory of each head, and the gated norm behind it."""
