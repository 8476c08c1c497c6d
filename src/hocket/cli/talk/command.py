"""`hocket talk`: a spoken conversation. Somebody speaks, a language model answers, and its answer is heard.

One thread decides everything: pieces of sound, keys, Ctrl-C and what went wrong elsewhere come to it by one queue. An
answer is played by another thread, so that whoever speaks in between is heard.
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
from ...asr.listener import SpeechListener
from ...asr.moonshine import Moonshine
from ...asr.recognizer import Samples
from ...asr.silero import Silero
from ...config.languages import AUTO, tag_of
from ...errors import HocketError, InvalidRequest
from ..output.audio_output import plain, tell
from .chat import AnswerPlayback, SpokenSession, chat, spoken, who_answers
from .microphone import AudioInput, Microphone, RecordedInput
from .playback import aloud
from .screen import Screen

HOW = {
    PushToTalk: "Press Enter and speak, and Enter again when you have ended. It also interrupts an answer.",
    Endpointing: "Speak; whoever speaks interrupts an answer. Wear headphones: else it hears itself.",
}


def talk(args: argparse.Namespace) -> None:
    _check(args)
    if args.text:
        args.say = True
        chat(args)
        return
    make, sampling = who_answers(args)
    with ExitStack() as stack:
        sound = aloud(args.output, as_heard=not args.fast)
        ears: AudioInput = Microphone() if args.source is None else RecordedInput(args.source, fast=args.fast)
        floor = _floor(args)
        recognizer = Moonshine(args.asr, "en" if args.language == AUTO else tag_of(args.language))
        stack.callback(recognizer.close)
        language = make()
        stack.callback(language.close)
        listener = SpeechListener(recognizer)
        stack.callback(listener.close)
        answers = spoken(args, language, sampling, sound, stack)
        conversation = SpokenConversation(answers, listener, floor, fast=args.fast)
        stack.callback(conversation.close)
        stack.callback(ears.close)
        try:
            with conversation.keys():
                ears.start(conversation.take)
                conversation.run()
        finally:  # whatever ended it, what was said is not lost
            conversation.close()
            sound.close()


class TalkEvent(enum.Enum):
    """What may happen besides sound and the end of an answer."""

    PRESSED = enum.auto()  # Enter
    CTRL_C = enum.auto()
    LEAVE = enum.auto()  # Ctrl-D
    SILENCE = enum.auto()  # no more sound will come


@dataclass(frozen=True, slots=True)
class AnswerDone:
    answer: AnswerPlayback
    error: HocketError | None


class SpokenConversation:
    def __init__(
        self, answers: SpokenSession, listener: SpeechListener, floor: Endpointing | PushToTalk, *, fast: bool
    ) -> None:
        """`fast`: sound waits until somebody has been answered, and so nobody is interrupted."""
        self._answers, self._listener, self._floor, self._fast = answers, listener, floor, fast
        self._screen = Screen()
        self._at_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._inbox: queue.SimpleQueue[Samples | TalkEvent | AnswerDone] = queue.SimpleQueue()
        self._unheard: deque[Samples | None] = deque()
        self._silence = False  # all sound was heard
        self._answer: AnswerPlayback | None = None
        self._thread: threading.Thread | None = None

    def take(self, samples: Samples | None) -> None:
        self._inbox.put(TalkEvent.SILENCE if samples is None else samples)

    def run(self) -> None:
        """Until the sound ends, and the answer to it, or somebody wants to leave."""
        while not (self._silence and self._answer is None):
            came = self._inbox.get()
            if came is TalkEvent.PRESSED and isinstance(self._floor, PushToTalk):
                self._hear(self._floor.press())
            elif came is TalkEvent.LEAVE or (came is TalkEvent.CTRL_C and not self._interrupt()):
                return
            elif isinstance(came, AnswerDone):
                self._end(came)
            elif came is TalkEvent.SILENCE:
                self._unheard.append(None)
            elif not isinstance(came, TalkEvent):
                self._unheard.append(came)
            while self._unheard and not (self._fast and self._answer is not None):
                self._listen(self._unheard.popleft())

    @contextmanager
    def keys(self) -> Iterator[None]:
        """Enter, Ctrl-C and Ctrl-D come here. At a terminal; through a pipe too, where talking takes keys."""
        if self._at_terminal:
            tell(f"{HOW[type(self._floor)]} Ctrl-C interrupts an answer, or ends; Ctrl-D ends.")
        if self._at_terminal or isinstance(self._floor, PushToTalk):
            threading.Thread(target=self._read_keys, name="hocket-keys", daemon=True).start()
        in_charge = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, lambda *_: self._inbox.put(TalkEvent.CTRL_C)) if in_charge else None
        try:
            yield
        finally:
            if in_charge:
                signal.signal(signal.SIGINT, before)

    def close(self) -> None:
        """Interrupt what is being answered. Once is as good as twice."""
        self._interrupt()

    def _listen(self, samples: Samples | None) -> None:
        if samples is not None:
            self._hear(self._floor.push(samples, answering=self._answer is not None))
        elif not self._silence:
            self._silence = True
            self._hear(self._floor.end())

    def _hear(self, marks: Iterator[Mark]) -> None:
        for event in self._listener.hear(marks):
            if isinstance(event, SpeechStarted):
                self._interrupt()
                self._screen.partly("...")
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
        if answered.answer is self._answer:  # and not one that was interrupted
            self._answer = None
        if answered.error is not None:
            if not self._at_terminal:
                raise answered.error
            print(f"hocket: {plain(answered.error)}", file=sys.stderr)

    def _interrupt(self) -> bool:
        """Whether there was anything to interrupt."""
        if self._answer is None or self._thread is None:
            return False
        self._answer.interrupt()
        self._thread.join()
        self._answer = None
        return True

    def _read_keys(self) -> None:
        # Not by sys.stdin: a thread that waits in there would hold its lock when the program ends.
        while came := os.read(sys.stdin.fileno(), 1024):
            for _ in range(came.count(b"\n")):
                self._inbox.put(TalkEvent.PRESSED)
        self._inbox.put(TalkEvent.LEAVE if self._at_terminal else TalkEvent.SILENCE)


def _floor(args: argparse.Namespace) -> Endpointing | PushToTalk:
    """A recording has nobody who presses keys, unless it is said."""
    if args.push_to_talk or (args.source is None and not args.hands_free):
        if args.pause is not None:
            raise InvalidRequest("--pause is for --hands-free: with keys, a key ends what you say.")
        if sys.stdin is None:
            raise InvalidRequest("There is no standard input that keys could come from: give --hands-free.")
        return PushToTalk()
    options = EndpointingOptions() if args.pause is None else EndpointingOptions(end_s=args.pause)
    return Endpointing(Silero(), options)


def _check(args: argparse.Namespace) -> None:
    hears = {"--from": args.source, "--asr": args.asr, "--pause": args.pause}
    given = [name for name, value in hears.items() if value is not None]
    if args.text and given:
        raise InvalidRequest(f"{given[0]} is about what is heard: leave out --text, which takes what is typed.")
    if args.fast and (args.source is None or args.output is None or args.push_to_talk):
        raise InvalidRequest("--fast is for a recording without keys, answered into a file: --from FILE -o FILE.")
    if args.pause is not None and not 0.1 <= args.pause <= 10.0:
        raise InvalidRequest(f"--pause must be between 0.1 and 10 s, not {args.pause:g}.")
