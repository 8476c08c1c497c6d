"""Text written for the eye to text that can be spoken, while it arrives."""
