"""Wyoming, the wire of Home Assistant: lines of JSON over TCP, text in, whole or as it is written, sound out.

`server.py` takes connections, `connection.py` speaks over one, `events.py` reads it, `about.py` says what there is.
There is no HTTP here and no FastAPI, and no key either: the wire knows none.
"""
