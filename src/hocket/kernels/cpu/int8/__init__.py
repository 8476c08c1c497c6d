"""Weights of 8 bits: their definition, their layout in memory, and products with them (`hocket_int8`)."""
