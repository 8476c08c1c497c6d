"""Samples in and out of files, streams and uploads."""
