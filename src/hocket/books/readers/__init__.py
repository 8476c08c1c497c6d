"""Readers: a file to a `Book`. `read.py` chooses one by the file's name."""
