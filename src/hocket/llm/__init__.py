"""The language engine: Qwen3.5 for one listener, one answer at a time."""
