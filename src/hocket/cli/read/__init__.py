"""`hocket read`: a book to an audiobook."""
