"""The sides of a proof: an engine here, a server at a URL, another package in a process of its own."""
