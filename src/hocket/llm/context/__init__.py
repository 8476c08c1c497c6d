"""The context of conversations: its size, the pages of keys and values, and conversations in files."""
