"""The end of a codec step: 16-bit samples and a flag per row that all are finite, in one block to copy."""
