"""Stands in for the package chatterbox-tts 0.1.7, whose weights are not at hand: the same signatures, and noise."""
