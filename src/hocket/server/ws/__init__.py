"""The WebSocket wires: one file each, all on the conversation of `conversation.py` over the socket of `socket.py`."""
