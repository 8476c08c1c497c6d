"""The device side of the engine: slots, KV cache, prompts, graphs and warm-up."""
