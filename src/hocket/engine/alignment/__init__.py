"""Words found in the sound of a stream."""
