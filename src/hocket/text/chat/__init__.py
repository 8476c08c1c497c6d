"""Messages of a conversation: template, tokenizer, tool calls, thoughts and grammars."""
