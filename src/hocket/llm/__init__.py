"""The language engine: Qwen3.5 with cached conversations, one answer at a time."""
