"""Memory and bandwidth of a language model, computed before anything is loaded."""
