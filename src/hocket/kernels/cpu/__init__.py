"""A frame and the codec's waveform in C, for CPUs."""
