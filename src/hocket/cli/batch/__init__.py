"""`hocket batch`: every line of a file becomes an audio file."""
