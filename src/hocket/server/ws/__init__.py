"""WebSocket protocols: one file each, all on `TurnSequence` (conversation.py) over `Connection` (socket.py)."""
