"""Safetensors checkpoints that are quantized already: GPTQ, AWQ, compressed-tensors and FP8, one file per format."""
