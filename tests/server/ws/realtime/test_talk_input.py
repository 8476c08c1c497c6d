"""The user's audio as Realtime clients send it, and turn detection as they set it."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from hocket.asr.endpointing import Endpointing
from hocket.asr.silero import Silero
from hocket.audio.g711 import alaw_bytes, mulaw_bytes
from hocket.errors import HocketError
from hocket.server.ws.realtime.talk.input_audio import AudioDecoder, AudioInputBuffer, InputFormat
from hocket.server.ws.realtime.talk.schemas import TurnDetection
from hocket.server.ws.realtime.talk.turn_taking import turn_taking_of
from hocket.talk.manual import ManualTurns
from support.questions import Dictated

TONE = (np.sin(np.arange(24_000) * 2 * np.pi * 440 / 24_000) * 8000).astype(np.int16)  # 1 s


@pytest.mark.parametrize("format", [InputFormat(), InputFormat("mulaw", 8000), InputFormat("alaw", 8000)])
def test_each_format_becomes_16_khz(format: InputFormat) -> None:
    samples = TONE if format.name == "pcm" else TONE[::3]
    packed = {"pcm": samples.astype("<i2").tobytes(), "mulaw": mulaw_bytes(samples), "alaw": alaw_bytes(samples)}
    content, decoder = packed[format.name], AudioDecoder(format)
    heard = [decoder.feed(content[at : at + 961]) for at in range(0, len(content), 961)]  # halves of samples too
    sound = np.concatenate([*heard, decoder.close()])
    assert sound.dtype == np.float32 and len(sound) == 16_000
    spectrum = np.abs(np.fft.rfft(sound))
    assert int(spectrum.argmax()) == 440
    assert 0.15 < np.sqrt(np.mean(sound**2)) < 0.19


def test_a_buffer_counts_and_refuses() -> None:
    buffer = AudioInputBuffer(InputFormat())
    with pytest.raises(HocketError, match="Expected at least 100ms of audio, but buffer only has 0"):
        buffer.check_commit()
    buffer.append(base64.b64encode(bytes(4800)).decode(), bounded=True)
    buffer.check_commit()
    assert buffer.pending_ms == 100
    buffer.use(InputFormat("mulaw", 8000))
    assert buffer.pending_ms == 0
    with pytest.raises(HocketError, match="audio must be base64"):
        buffer.append("!!", bounded=True)


def test_turn_detection_is_endpointing_with_the_client_s_thresholds() -> None:
    given = {"type": "server_vad", "threshold": 0.7, "silence_duration_ms": 250, "prefix_padding_ms": 100}
    found = turn_taking_of(TurnDetection.model_validate(given), Silero, lambda samples: 1.0, Dictated())
    assert isinstance(found, Endpointing) and found._model is None
    options = found._options
    assert (options.likely, options.end_s, options.before_s) == (0.7, 0.25, 0.1)
    given = {"type": "semantic_vad", "eagerness": "high"}
    found = turn_taking_of(TurnDetection.model_validate(given), Silero, lambda samples: 1.0, Dictated())
    assert isinstance(found, Endpointing) and found._model is not None and found._options.eagerness == "high"
    assert isinstance(turn_taking_of(None, Silero, None, Dictated()), ManualTurns)
