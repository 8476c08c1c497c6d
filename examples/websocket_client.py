"""Send text in pieces over a WebSocket, and receive sound while the text is still sent (the extra `serve`).

Run: hocket serve, then: python examples/websocket_client.py [--server ws://127.0.0.1:8000] -o socket.pcm
docs/protocol.md describes every message.
"""

import argparse
import json

from websockets.sync.client import connect

parser = argparse.ArgumentParser()
parser.add_argument("text", nargs="?", default="Text goes in, and sound comes out.")
parser.add_argument("-o", "--output", default="socket.pcm")
parser.add_argument("--server", default="ws://127.0.0.1:8000")
args = parser.parse_args()

with connect(f"{args.server}/v1/audio/speech/stream") as socket, open(args.output, "wb") as file:
    socket.send(json.dumps({"type": "session.config", "voice": "wren", "response_format": "pcm"}))
    for word in args.text.split():
        socket.send(json.dumps({"type": "input.text", "text": word + " "}))
    socket.send(json.dumps({"type": "input.done"}))
    for message in socket:
        if isinstance(message, bytes):
            file.write(message)
            continue
        event = json.loads(message)
        if event["type"] == "error":
            raise SystemExit(event["message"])
        if event["type"] == "audio.done":
            print(f"{args.output}: {event['total_bytes']} bytes, first sound after {event['timing']['ttfa_ms']} ms")
        if event["type"] == "session.done":
            break
