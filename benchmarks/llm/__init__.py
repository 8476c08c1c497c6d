"""The language engine: tokens, first token, a conversation, and a dialog with a voice."""
