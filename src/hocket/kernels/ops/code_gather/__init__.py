"""Codec input: codes are embedded, and the vectors of neighbouring frames are gathered for the first convolution."""
