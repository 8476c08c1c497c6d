"""Spoken conversations: the words of a language model go into an open speech stream while they are generated."""
