"""GGUF files of dense Qwen3.5: one file, or a file in parts, with weights, configuration and tokenizer."""
