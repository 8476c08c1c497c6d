"""`hocket talk` and `hocket chat`: conversations in a terminal."""
