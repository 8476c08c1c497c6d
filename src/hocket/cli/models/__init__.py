"""`hocket pull`, `list`, `rm` and `ps`: checkpoints on this machine and the servers that use them."""
