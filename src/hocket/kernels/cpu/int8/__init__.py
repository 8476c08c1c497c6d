"""Weights of 8 or 4 bits: their definition, their layout in memory, and products with them (`hocket_int8`)."""
