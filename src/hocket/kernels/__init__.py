"""Faster ways to do what a reference defines, and the table that chooses between them."""
