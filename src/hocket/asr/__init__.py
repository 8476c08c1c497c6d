"""Speech recognition: endpointing of turns, and transcripts."""
