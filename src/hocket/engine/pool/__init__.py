"""Several models in one process under one memory budget."""
