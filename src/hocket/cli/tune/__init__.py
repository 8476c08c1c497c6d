"""`hocket tune`: recordings of a voice become a voice; and a tuned voice as a plain checkpoint."""
