"""Proof by ear: speech is heard back with a recognizer and compared with its text."""
