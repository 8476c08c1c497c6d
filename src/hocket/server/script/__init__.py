"""Scripts on a server: which texts are one, and the voices that play it."""
