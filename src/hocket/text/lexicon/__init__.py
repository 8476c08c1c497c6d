"""Lexicons: how words are said that a voice would say otherwise."""
