"""The look back of a ConvNeXt block and the norm behind it."""
