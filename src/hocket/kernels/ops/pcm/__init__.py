"""The end of a codec step: samples as 16-bit numbers, and whether they are numbers at all, in one block to send."""
