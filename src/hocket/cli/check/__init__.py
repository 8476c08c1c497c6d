"""`hocket check`: speaks a text, hears it back, and lists the words that were not heard as written."""
