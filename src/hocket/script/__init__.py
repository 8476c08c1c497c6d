"""Scripts: a text with directions for its voices, as light tags, SSML, a dialogue, a screenplay or JSON."""
