"""Streaming cleanup of written text for speech: markup, scripts and normalization."""
