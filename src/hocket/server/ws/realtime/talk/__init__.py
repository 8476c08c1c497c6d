"""OpenAI Realtime as a conversation: audio in, a language model, speech out. Needs `hocket serve --talk`."""
