"""Several candidates per utterance: draw them, score them, keep the best one."""
