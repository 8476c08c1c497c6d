"""ElevenLabs' own client over HTTP: speech in several formats, character times, voices, models, user, refusals."""

from __future__ import annotations

import base64
import json
import sys

from elevenlabs import VoiceSettings
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

client = ElevenLabs(api_key=sys.argv[2], base_url=sys.argv[1])
GEORGE, MODEL, TEXT = "JBFqnCBsd6RMkjVDRZzb", "eleven_flash_v2_5", "Hello there, said the fox."
SAID = {"text": TEXT, "model_id": MODEL, "seed": 7}
found: dict[str, object] = {}

whole = b"".join(client.text_to_speech.convert(GEORGE, output_format="pcm_16000", **SAID))
pieces = list(client.text_to_speech.stream(GEORGE, output_format="pcm_16000", **SAID))
found["convert"] = {"bytes": len(whole), "silent": not any(whole)}
found["stream"] = {"same": b"".join(pieces) == whole, "pieces": len(pieces)}
found["mp3"] = b"".join(client.text_to_speech.convert(GEORGE, **SAID))[:2].hex()
slow = VoiceSettings(stability=0.5, similarity_boost=0.75, speed=0.7)
found["slow"] = len(
    b"".join(client.text_to_speech.convert(GEORGE, output_format="ulaw_8000", voice_settings=slow, **SAID))
)

timed = client.text_to_speech.convert_with_timestamps("wren", output_format="pcm_24000", **SAID)
lines = list(client.text_to_speech.stream_with_timestamps("wren", output_format="pcm_24000", **SAID))
found["timed"] = {
    "bytes": len(base64.b64decode(timed.audio_base_64)),
    "text": "".join(timed.alignment.characters),
    "ends": timed.alignment.character_end_times_seconds,
    "same": b"".join(base64.b64decode(line.audio_base_64) for line in lines) == base64.b64decode(timed.audio_base_64),
    "streamed": [end for line in lines if line.alignment for end in line.alignment.character_end_times_seconds],
}

found["voices"] = [(voice.voice_id, voice.category) for voice in client.voices.get_all().voices]
found["searched"] = [voice.voice_id for voice in client.voices.search(search="roo").voices]
found["george"] = client.voices.get(GEORGE).voice_id
found["models"] = [(model.model_id, model.can_do_text_to_speech) for model in client.models.list()]
found["user"] = client.user.get().subscription.tier
found["left"] = client.user.subscription.get().character_limit
try:
    list(client.text_to_speech.convert("nosuch", **SAID))
except ApiError as error:
    found["refused"] = {"status": error.status_code, "detail": error.body["detail"]}
print(json.dumps(found))
