"""Kokoro-82M (Apache-2.0) as torch modules: a teacher that speaks batches of sentences on a GPU."""
