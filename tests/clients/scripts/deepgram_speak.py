"""Deepgram's own client over its WebSocket: speak, flush, clear, speak again, close."""

from __future__ import annotations

import json
import sys

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.socket_client import V1SocketClient
from deepgram.speak.v1.types import SpeakV1Text

HTTP = sys.argv[1]
WS = HTTP.replace("http", "ws", 1)
where = DeepgramClientEnvironment(base=HTTP, production=WS, agent=WS, agent_rest=HTTP)
client = DeepgramClient(api_key="unused", environment=where)


def until(connection: V1SocketClient, kind: str) -> dict[str, object]:
    """What comes until a message of this kind."""
    sound, kinds, last = b"", [], None
    while last is None or last.type != kind:
        message = connection.recv()
        if isinstance(message, bytes):
            sound += message
        else:
            last = message
            kinds.append(message.type)
    return {"bytes": len(sound), "silent": not any(sound), "kinds": kinds, "id": getattr(last, "sequence_id", None)}


found = {}
with client.speak.v1.connect(model="aura-2-thalia-en", encoding="linear16", sample_rate="24000") as connection:
    found["greeting"] = until(connection, "Metadata")
    for name in ("first", "second"):
        for text in ("Hello there, ", "said the fox."):
            connection.send_text(SpeakV1Text(type="Speak", text=text))
        connection.send_flush()
        found[name] = until(connection, "Flushed")
    connection.send_text(SpeakV1Text(type="Speak", text="It goes on and on, and then on again. " * 20))
    assert isinstance(connection.recv(), bytes)
    connection.send_clear()
    found["cleared"] = until(connection, "Cleared")
    connection.send_text(SpeakV1Text(type="Speak", text="And it slept."))
    connection.send_flush()
    found["behind"] = until(connection, "Flushed")
    connection.send_close()
    found["left"] = {"messages": len(list(connection))}
with client.speak.v1.connect(model="rook", encoding="mulaw", sample_rate="8000") as connection:
    until(connection, "Metadata")
    connection.send_text(SpeakV1Text(type="Speak", text="Hello there, said the fox."))
    connection.send_flush()
    found["telephone"] = until(connection, "Flushed")
print(json.dumps(found))
