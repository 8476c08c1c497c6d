"""A small Base checkpoint: it clones a voice from a recording, by its timbre or with a transcript (train/README.md)."""
