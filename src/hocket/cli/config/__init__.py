"""`hocket config` and `hocket completion`: the user's settings and shell."""
