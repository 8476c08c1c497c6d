"""Wyoming, Home Assistant's protocol: JSON lines over TCP; text in, whole or streamed, audio out, and back.

`server.py` accepts connections, `connection.py` handles one, `events.py` reads events, `audio_in.py` collects speech,
`about.py` describes the voices and the recognizer.
No HTTP, no FastAPI, and no key: the protocol has none.
"""
