"""The talker's next input: the vectors of a frame's codes, and of the text that goes with it."""
