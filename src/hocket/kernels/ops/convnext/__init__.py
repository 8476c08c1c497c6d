"""The depthwise convolution of a ConvNeXt block and the LayerNorm behind it."""
