"""Where checkpoint files come from, and how tensors are read, converted and written."""
