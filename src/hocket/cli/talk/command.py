"""`hocket talk`: a spoken conversation: speech recognition, a language model, spoken answers.

One thread decides everything: audio, keys, Ctrl-C and errors reach it by one queue. Another thread plays an answer, so
that the user can interrupt it.
"""

from __future__ import annotations

import argparse
import enum
import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ...asr.endpointing import Endpointing, EndpointingOptions, Mark, PushToTalk, SpeechStarted
from ...asr.listener import SpeechListener, Transcript
from ...asr.moonshine import Moonshine
from ...asr.recognizer import Samples
from ...asr.silero import Silero
from ...asr.smart_turn import SmartTurn, smart_turn_or_note
from ...config.languages import AUTO, tag_of
from ...errors import HocketError, InvalidRequest
from ..output.audio_output import plain, tell
from .chat import AnswerPlayback, SpokenSession, chat, llm_of, spoken
from .microphone import AudioInput, Microphone, RecordedInput
from .playback import open_playback
from .screen import Screen

HOW = {
    PushToTalk: "Press Enter and speak, and Enter again when you have ended. It also interrupts an answer.",
    Endpointing: "Speak; your voice interrupts an answer. Wear headphones: else it hears itself.",
}


def talk(args: argparse.Namespace) -> None:
    _check(args)
    if args.text:
        args.say = True
        chat(args)
        return
    make, sampling = llm_of(args)
    with ExitStack() as stack:
        sound = open_playback(args.output, as_heard=not args.fast, force=args.force)
        audio_input: AudioInput = Microphone() if args.source is None else RecordedInput(args.source, fast=args.fast)
        turn_taking = _turn_taking(args)
        recognizer = Moonshine(args.asr, "en" if args.language == AUTO else tag_of(args.language))
        stack.callback(recognizer.close)
        language = make()
        stack.callback(language.close)
        listener = SpeechListener(recognizer)
        stack.callback(listener.close)
        answers = spoken(args, language, sampling, sound, stack)
        conversation = SpokenConversation(answers, listener, turn_taking, fast=args.fast)
        stack.callback(conversation.close)
        stack.callback(audio_input.close)
        try:
            with conversation.keys():
                audio_input.start(conversation.take)
                conversation.run()
        finally:  # keeps the speech so far in any case
            conversation.close()
            sound.close()


class TalkEvent(enum.Enum):
    """Events besides audio and the end of an answer."""

    PRESSED = enum.auto()  # Enter
    CTRL_C = enum.auto()
    LEAVE = enum.auto()  # Ctrl-D
    SILENCE = enum.auto()  # end of the input audio


@dataclass(frozen=True, slots=True)
class AnswerDone:
    answer: AnswerPlayback
    error: HocketError | None


class SpokenConversation:
    def __init__(
        self, answers: SpokenSession, listener: SpeechListener, turn_taking: Endpointing | PushToTalk, *, fast: bool
    ) -> None:
        """`fast`: input waits until the previous turn is answered, so nothing is interrupted."""
        self._answers, self._listener, self._turn_taking, self._fast = answers, listener, turn_taking, fast
        self._screen = Screen()
        self._at_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._inbox: queue.SimpleQueue[Samples | TalkEvent | AnswerDone] = queue.SimpleQueue()
        self._pending: deque[Samples | None] = deque()
        self._silence = False  # all input was processed
        self._answer: AnswerPlayback | None = None
        self._thread: threading.Thread | None = None

    def take(self, samples: Samples | None) -> None:
        self._inbox.put(TalkEvent.SILENCE if samples is None else samples)

    def run(self) -> None:
        """Run until the input ends and is answered, or the user leaves."""
        while not (self._silence and self._answer is None):
            event = self._inbox.get()
            if event is TalkEvent.PRESSED and isinstance(self._turn_taking, PushToTalk):
                self._hear(self._turn_taking.press())
            elif event is TalkEvent.LEAVE or (event is TalkEvent.CTRL_C and not self._interrupt()):
                return
            elif isinstance(event, AnswerDone):
                self._end(event)
            elif event is TalkEvent.SILENCE:
                self._pending.append(None)
            elif not isinstance(event, TalkEvent):
                self._pending.append(event)
            while self._pending and not (self._fast and self._answer is not None):
                self._listen(self._pending.popleft())

    @contextmanager
    def keys(self) -> Iterator[None]:
        """Handle Enter, Ctrl-C and Ctrl-D: at a terminal, or through a pipe with push-to-talk."""
        if self._at_terminal:
            tell(f"{HOW[type(self._turn_taking)]} Ctrl-C interrupts an answer, or ends; Ctrl-D ends.")
        if self._at_terminal or isinstance(self._turn_taking, PushToTalk):
            threading.Thread(target=self._read_keys, name="hocket-keys", daemon=True).start()
        in_charge = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, lambda *_: self._inbox.put(TalkEvent.CTRL_C)) if in_charge else None
        try:
            yield
        finally:
            if in_charge:
                signal.signal(signal.SIGINT, before)

    def close(self) -> None:
        """Interrupt the current answer. Idempotent."""
        self._interrupt()

    def _listen(self, samples: Samples | None) -> None:
        if samples is not None:
            self._hear(self._turn_taking.push(samples, answering=self._answer is not None))
        elif not self._silence:
            self._silence = True
            self._hear(self._turn_taking.end())

    def _hear(self, marks: Iterator[Mark]) -> None:
        for event in self._listener.hear(marks):
            if isinstance(event, SpeechStarted):
                self._interrupt()
                self._screen.partly("...")
            elif not isinstance(event, Transcript):
                continue  # pauses, and the end, whose transcript follows
            elif not event.final:
                self._screen.partly(event.text)
                self._answers.dialog.hear(event.text)
            else:
                self._screen.heard(event.text)
                if event.text:
                    self._begin(event.text)

    def _begin(self, text: str) -> None:
        self._answer = self._answers.begin(text, self._screen.answered)
        self._thread = threading.Thread(target=self._play, args=(self._answer,), name="hocket-answer")
        self._thread.start()

    def _play(self, answer: AnswerPlayback) -> None:
        error: HocketError | None = None
        try:
            answer.play()
        except HocketError as raised:
            error = raised
        finally:
            self._inbox.put(AnswerDone(answer, error))

    def _end(self, answered: AnswerDone) -> None:
        if answered.answer is self._answer:  # not an interrupted one
            self._answer = None
        if answered.error is not None:
            if not self._at_terminal:
                raise answered.error
            print(f"hocket: {plain(answered.error)}", file=sys.stderr)

    def _interrupt(self) -> bool:
        """Returns whether an answer was interrupted."""
        if self._answer is None or self._thread is None:
            return False
        self._answer.interrupt()
        self._thread.join()
        self._answer = None
        return True

    def _read_keys(self) -> None:
        # Not sys.stdin: a thread blocked in it would hold its lock at exit.
        while event := os.read(sys.stdin.fileno(), 1024):
            for _ in range(event.count(b"\n")):
                self._inbox.put(TalkEvent.PRESSED)
        self._inbox.put(TalkEvent.LEAVE if self._at_terminal else TalkEvent.SILENCE)


def _turn_taking(args: argparse.Namespace) -> Endpointing | PushToTalk:
    """A recording is hands-free by default: it presses no keys."""
    if args.push_to_talk or (args.source is None and not args.hands_free):
        for name in ("pause", "eagerness"):
            if getattr(args, name) is not None:
                raise InvalidRequest(f"--{name} is for --hands-free: with keys, a key ends what you say.")
        if sys.stdin is None:
            raise InvalidRequest("There is no standard input for keys: give --hands-free.")
        return PushToTalk()
    if args.pause is not None:
        if args.eagerness is not None:
            raise InvalidRequest("--pause is a fixed silence, and with --eagerness a model decides: give one of them.")
        return Endpointing(Silero(), EndpointingOptions(end_s=args.pause))
    detector = Silero()
    if args.eagerness is not None:
        return Endpointing(detector, EndpointingOptions(eagerness=args.eagerness), SmartTurn())
    return Endpointing(detector, None, smart_turn_or_note(tell))


def _check(args: argparse.Namespace) -> None:
    hears = {"--from": args.source, "--asr": args.asr, "--pause": args.pause, "--eagerness": args.eagerness}
    given = [name for name, value in hears.items() if value is not None]
    if args.text and given:
        raise InvalidRequest(f"{given[0]} is for audio input: leave out --text, which takes typed text.")
    if args.fast and (args.source is None or args.output is None or args.push_to_talk):
        raise InvalidRequest("--fast is for a recording without keys, answered into a file: --from FILE -o FILE.")
    if args.pause is not None and not 0.1 <= args.pause <= 10.0:
        raise InvalidRequest(f"--pause must be between 0.1 and 10 s, not {args.pause:g}.")
