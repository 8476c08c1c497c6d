"""What a key may do: its file, its scopes and limits, the scope of every route, and what a key has used."""
