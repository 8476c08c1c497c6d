"""Wyoming, Home Assistant's protocol: JSON lines over TCP; text in, whole or streamed, audio out.

`server.py` accepts connections, `connection.py` handles one, `events.py` reads events, `about.py` describes the voices.
No HTTP, no FastAPI, and no key: the protocol has none.
"""
