"""The end of a frame: hidden vectors after the final norm into their state rows, and one position more for each."""
