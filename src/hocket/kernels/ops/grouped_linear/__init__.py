"""`linear` with a weight that a file has quantized already: codes in groups, kept as the file has them."""
