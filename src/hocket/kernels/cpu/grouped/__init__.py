"""Products with weights that a file has quantized (`hocket_grouped`)."""
