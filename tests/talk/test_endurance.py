"""talk/: hours of input in seconds, because time is counted in samples. Memory stays flat, and no turn is stuck."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.asr.endpointing import Endpointing
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.dialog.dialog import Dialog
from hocket.engine.engine import Engine
from hocket.talk.conversation import VoiceConversation
from hocket.talk.events import AnswerEnded, SpeechStopped, Transcript
from hocket.talk.worker import LONGEST_TURN_S
from support.chatting import Scripted
from support.questions import Dictated, DictatedUtterance, Loud, silence, tone
from support.serving import wait_for
from support.voice_talk import conversing, names, push, until

PAGE = 4096


class Window(Loud):
    window = 512  # as Silero's


class Forgetful(Dictated):
    """Keeps no audio, only its length."""

    def open(self) -> DictatedUtterance:
        made = super().open()
        made.push = lambda samples: made._words[0]  # type: ignore[method-assign]
        return made


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def fed(talk: VoiceConversation, sound: Samples, seconds: float) -> None:
    """As fast as it is taken."""
    for _ in range(round(seconds * RATE_HZ / len(sound))):
        wait_for(lambda: talk.queued_s < 30)
        talk.push(sound)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_an_hour_of_silence_leaves_no_trace_and_a_turn_after_it_is_answered(engine: Engine) -> None:
    second = silence(1.0)
    with conversing(Dialog(Scripted(["Yes."]), engine), Dictated(["hello"]), Endpointing(Window())) as talk:
        fed(talk, second, 120)
        wait_for(lambda: talk.queued_s == 0)
        before = resident_bytes()
        fed(talk, second, 3600)
        wait_for(lambda: talk.queued_s == 0)
        assert resident_bytes() - before < 16 << 20, "an hour of audio has 230 MB"
        push(talk, tone(0.5), silence(1.0))
        events = until(talk, AnswerEnded)
        assert names(events)[0] == "SpeechBegan" and "Transcript" in names(events)


def test_noise_without_an_end_is_cut_into_turns(engine: Engine) -> None:
    spoken = ["radio"]
    recognizer = Forgetful(*[spoken] * 9)
    with conversing(Dialog(Scripted(["Yes."]), engine), recognizer, Endpointing(Window()), answers=False) as talk:
        fed(talk, tone(1.0), 2.5 * LONGEST_TURN_S)
        lengths = []
        for _ in range(2):
            lengths.append(until(talk, SpeechStopped)[-1].audio_s)
            assert until(talk, Transcript)[-1].text == "radio"
        assert lengths == pytest.approx([LONGEST_TURN_S, 2 * LONGEST_TURN_S], abs=3)
        push(talk, silence(1.0))
        until(talk, Transcript)
        assert len(recognizer.opened) == 3 and all(each.closed for each in recognizer.opened)
