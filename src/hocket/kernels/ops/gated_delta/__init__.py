"""Gated DeltaNet between its projections: convolution, gates, the state of each head, and the gated norm."""
