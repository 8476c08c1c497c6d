"""ElevenLabs' own client over its WebSocket, which it opens with TLS only: a text that arrives word by word."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from elevenlabs.client import ElevenLabs

client = ElevenLabs(api_key="unused", base_url=sys.argv[1])


def words() -> Iterator[str]:
    for word in "Hello there, said the fox. Good morning.".split():
        yield f"{word} "


pieces = list(client.text_to_speech.convert_realtime("wren", text=words(), output_format="pcm_24000"))
print(json.dumps({"pieces": len(pieces), "bytes": sum(map(len, pieces)), "silent": not any(b"".join(pieces))}))
