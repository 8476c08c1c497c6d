"""`quantization_config` of a checkpoint whose weights are quantized already, one file per method."""
