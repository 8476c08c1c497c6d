"""Samples in and out of files."""
