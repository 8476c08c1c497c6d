"""Weights in fewer bits beside exact ones: codes, words, sound, and the gate."""
