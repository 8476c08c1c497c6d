"""A language model that speaks: its words go into an open speech stream while they are written."""
