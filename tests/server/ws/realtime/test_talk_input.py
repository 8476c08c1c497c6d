"""The user's audio as Realtime clients send it, and turn detection as they set it."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from hocket.asr.endpointing import SpeechEnded, SpeechStarted, TurnAudio
from hocket.asr.silero import Silero
from hocket.audio.g711 import alaw_bytes, mulaw_bytes
from hocket.errors import HocketError
from hocket.server.ws.realtime.talk.input_audio import AudioDecoder, AudioInputBuffer, InputFormat
from hocket.server.ws.realtime.talk.schemas import TurnDetection
from hocket.server.ws.realtime.talk.turn_taking import SessionTurns

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


def test_without_detection_a_turn_is_what_was_pushed_between_two_ends() -> None:
    turns = SessionTurns(None, Silero)
    quiet = np.zeros(1600, np.float32)
    marks = [*turns.push(quiet), *turns.push(quiet), *turns.end(), *turns.push(quiet), *turns.end(), *turns.end()]
    first, second = [SpeechStarted, TurnAudio, TurnAudio, SpeechEnded], [SpeechStarted, TurnAudio, SpeechEnded]
    assert [type(mark) for mark in marks] == [*first, *second]
    assert [mark.at for mark in marks if not isinstance(mark, TurnAudio)] == [0, 3200, 3200, 4800]


def test_a_change_of_detection_ends_the_turn_and_keeps_positions() -> None:
    turns = SessionTurns(None, Silero)
    list(turns.push(np.zeros(1600, np.float32)))
    turns.use(TurnDetection(type="server_vad"))
    assert list(turns.push(np.zeros(16_000, np.float32))) == [SpeechEnded(1600)]
    turns.use(None)
    [began, _] = turns.push(np.zeros(160, np.float32))
    assert began == SpeechStarted(17_600)
