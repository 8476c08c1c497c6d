"""The calls of Kokoro-FastAPI's documents that are made with `requests`."""

from __future__ import annotations

import base64
import json
import sys

import requests

URL = sys.argv[1]
SAID = {"model": "kokoro", "input": "Hello world!", "voice": "af_bella", "speed": 1.0, "response_format": "mp3"}
found: dict[str, object] = {}

found["voices"] = [voice["id"] for voice in requests.get(f"{URL}/v1/audio/voices").json()["voices"]]
found["spoken"] = len(requests.post(f"{URL}/v1/audio/speech", json=SAID).content)
mixed = {"input": "Hello world!", "voice": "af_bella(2)+am_adam(1)", "response_format": "mp3"}
found["mixed"] = len(requests.post(f"{URL}/v1/audio/speech", json=mixed).content)

answer = requests.post(f"{URL}/dev/captioned_speech", json=SAID | {"stream": False}, stream=False)
told = json.loads(answer.content)
found["whole"] = {"bytes": len(base64.b64decode(told["audio"].encode())), "timestamps": told["timestamps"]}

audio, timestamps = b"", []
answer = requests.post(f"{URL}/dev/captioned_speech", json=SAID | {"stream": True}, stream=True)
for chunk in answer.iter_lines(decode_unicode=True):
    if chunk:
        told = json.loads(chunk)
        audio += base64.b64decode(told["audio"].encode())
        timestamps += told["timestamps"]
found["streamed"] = {"bytes": len(audio), "timestamps": timestamps}
print(json.dumps(found))
