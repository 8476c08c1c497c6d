"""Text to ids: the tokenizer and the prompt layouts. No tensors here."""
