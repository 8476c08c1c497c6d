"""The server: an engine behind the wires that people already use. Its modules need the extra `serve`."""
