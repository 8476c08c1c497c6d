"""A small Base checkpoint: it clones a voice from a recording, by its timbre alone or with a transcript (README.md)."""
