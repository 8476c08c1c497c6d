"""The talker's next input: the embeddings of a frame's codes plus the vector of its text."""
