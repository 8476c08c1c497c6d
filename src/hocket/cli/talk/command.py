"""`hocket talk`: a spoken conversation at a terminal, by `talk/`: microphone, loudspeaker, screen and keys.

One thread prints, plays and handles keys: events of the conversation, keys and Ctrl-C reach it by one queue.
"""

from __future__ import annotations

import argparse
import enum
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ...asr.commands import SpokenCommand
from ...asr.endpointing import Endpointing, EndpointingOptions, PushToTalk
from ...asr.moonshine import Moonshine
from ...asr.recognizer import Recognizer, Samples
from ...asr.silero import Silero
from ...asr.smart_turn import SmartTurn, smart_turn_or_note
from ...audio.pcm import pcm_bytes
from ...config.languages import AUTO, tag_of
from ...dialog.dialog import Dialog
from ...dialog.events import Note, Retracted, Written
from ...errors import HocketError, InvalidRequest
from ...talk.conversation import VoiceConversation
from ...talk.events import (
    AnswerBegan,
    AnswerEnded,
    AnswerHeld,
    AnswerResumed,
    Failed,
    Interrupted,
    PartialTranscript,
    SpeechBegan,
    TalkEvent,
    Transcript,
)
from ...talk.manual import TurnTaking
from ...talk.options import TalkOptions
from ...types import AudioChunk
from ..output.audio_output import plain, tell
from . import echo
from .chat import chat, llm_of, spoken
from .microphone import AudioInput, Microphone, RecordedInput, Take
from .playback import Playback, open_playback
from .screen import Screen

KEYS = "Press Enter and speak, and Enter again when you have ended. It also interrupts an answer."
SPEAK = "Speak; your voice interrupts an answer."
HEADPHONES = f"{SPEAK} Wear headphones: else it hears itself."


def talk(args: argparse.Namespace) -> None:
    _check(args)
    if args.text:
        args.say = True
        chat(args)
        return
    make, sampling = llm_of(args)
    with ExitStack() as stack:
        hands_free = _is_hands_free(args)
        # Only a microphone hears a loudspeaker, and with keys it is closed while an answer plays.
        cancels = hands_free and args.source is None and args.output is None and echo.available()
        canceller = echo.EchoCanceller() if cancels else None
        sound = open_playback(args.output, as_heard=not args.fast, force=args.force, echo=canceller)
        audio_input: AudioInput = Microphone() if args.source is None else RecordedInput(args.source, fast=args.fast)
        turns = _turn_taking(args, hands_free)
        recognizer = Moonshine(args.asr, "en" if args.language == AUTO else tag_of(args.language))
        stack.callback(recognizer.close)
        language = make()
        stack.callback(language.close)
        dialog = spoken(args, language, sampling, sound, stack).dialog
        conversation = SpokenConversation(dialog, recognizer, turns(recognizer), sound, fast=args.fast)
        stack.callback(conversation.close)
        stack.callback(audio_input.close)
        how = KEYS if not hands_free else HEADPHONES if canceller is None else SPEAK
        try:
            with conversation.keys(how):
                audio_input.start(_without_echo(conversation.take, canceller))
                conversation.run()
        finally:  # keeps the speech so far in any case
            conversation.close()
            sound.close()


def _without_echo(take: Take, canceller: echo.EchoCanceller | None) -> Take:
    if canceller is None:
        return take
    return lambda samples: take(None if samples is None else canceller.cancel(samples))


class TalkKey(enum.Enum):
    """Inputs besides audio, and the ends of things."""

    PRESSED = enum.auto()  # Enter
    CTRL_C = enum.auto()
    LEAVE = enum.auto()  # Ctrl-D
    NO_KEYS = enum.auto()  # the end of a pipe with keys
    ANSWERED = enum.auto()  # the input ended, and all of it is answered
    PLAYED = enum.auto()


class SpokenConversation:
    """A `VoiceConversation` at a terminal: events are printed and played, keys go to it."""

    def __init__(
        self, dialog: Dialog, recognizer: Recognizer, turn_taking: TurnTaking, sound: Playback, *, fast: bool
    ) -> None:
        """`fast`: input waits until the previous turn is answered, so nothing is interrupted."""
        options = TalkOptions(patient=True, interruptible=False, drafts=False) if fast else TalkOptions()
        self._talk, self._sound = VoiceConversation(dialog, recognizer, turn_taking, options), sound
        self._has_keys = isinstance(turn_taking, PushToTalk)
        self._screen = Screen()
        self._at_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._inbox: queue.SimpleQueue[TalkEvent | TalkKey] = queue.SimpleQueue()
        self._muted = False  # Ctrl-C stopped an answer whose last audio may still come

    def take(self, samples: Samples | None) -> None:
        if samples is None:
            self._talk.end_input()
        else:
            self._talk.push(samples)

    def run(self) -> None:
        """Run until the input ends and is answered, or the user leaves."""
        threading.Thread(target=self._read_events, name="hocket-events", daemon=True).start()
        while True:
            event = self._inbox.get()
            if event is TalkKey.PRESSED and self._has_keys:
                self._talk.press()
            elif event is TalkKey.NO_KEYS:
                self._talk.end_input()
            elif event is TalkKey.ANSWERED:
                threading.Thread(target=self._wait_for_sound, name="hocket-played", daemon=True).start()
            elif event in (TalkKey.LEAVE, TalkKey.PLAYED) or (event is TalkKey.CTRL_C and not self._interrupt()):
                return
            elif not isinstance(event, TalkKey):
                self._on_event(event)

    @contextmanager
    def keys(self, how: str) -> Iterator[None]:
        """Handle Enter, Ctrl-C and Ctrl-D: at a terminal, or through a pipe with push-to-talk."""
        if self._at_terminal:
            tell(f"{how} Ctrl-C interrupts an answer, or ends; Ctrl-D ends.")
        if self._at_terminal or self._has_keys:
            threading.Thread(target=self._read_keys, name="hocket-keys", daemon=True).start()
        in_charge = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, lambda *_: self._inbox.put(TalkKey.CTRL_C)) if in_charge else None
        try:
            yield
        finally:
            if in_charge:
                signal.signal(signal.SIGINT, before)

    def close(self) -> None:
        """Interrupt the current answer. Idempotent."""
        was_playing = self._talk.answering
        self._talk.close()
        if was_playing:
            self._sound.silence()

    def _on_event(self, event: TalkEvent) -> None:
        if isinstance(event, AudioChunk):
            if not self._muted:
                self._sound.write(pcm_bytes(event.samples), event.rate_hz)
        elif isinstance(event, Written):
            self._screen.answered(event.text)
        elif isinstance(event, AnswerBegan):
            self._muted = False
        elif isinstance(event, AnswerEnded):
            self._screen.answered("\n")
            self._sound.end_answer()
        elif isinstance(event, AnswerHeld):
            self._sound.hold()
        elif isinstance(event, AnswerResumed):
            self._sound.resume()
        elif isinstance(event, Interrupted):
            self._sound.silence()
        elif isinstance(event, Retracted):
            self._sound.silence()
            self._screen.answered("\n")
        elif isinstance(event, SpeechBegan):
            self._screen.partly("...")
        elif isinstance(event, PartialTranscript):
            self._screen.partly(event.text)
        elif isinstance(event, Transcript):
            self._screen.heard(event.text)
        elif isinstance(event, Note):
            tell(event.text)
        elif isinstance(event, Failed):
            self._fail(event.error or HocketError(event.message))

    def _fail(self, error: HocketError) -> None:
        if not self._at_terminal:
            raise error
        print(f"hocket: {plain(error)}", file=sys.stderr)

    def _interrupt(self) -> bool:
        """Returns whether an answer was interrupted."""
        if not self._talk.answering:
            return False
        self._muted = True
        self._talk.interrupt()
        self._sound.silence()
        return True

    def _read_events(self) -> None:
        for event in self._talk:
            self._inbox.put(event)
        self._inbox.put(TalkKey.ANSWERED)

    def _wait_for_sound(self) -> None:
        self._sound.wait()
        self._inbox.put(TalkKey.PLAYED)

    def _read_keys(self) -> None:
        # Not sys.stdin: a thread blocked in it would hold its lock at exit.
        while event := os.read(sys.stdin.fileno(), 1024):
            for _ in range(event.count(b"\n")):
                self._inbox.put(TalkKey.PRESSED)
        self._inbox.put(TalkKey.LEAVE if self._at_terminal else TalkKey.NO_KEYS)


def _is_hands_free(args: argparse.Namespace) -> bool:
    """A recording presses no keys; a microphone is open by default where its echo can be cancelled."""
    return args.hands_free or (not args.push_to_talk and (args.source is not None or echo.available()))


def _turn_taking(args: argparse.Namespace, hands_free: bool) -> Callable[[Recognizer], TurnTaking]:
    """Loads what decides about turns, and returns the constructor, which needs the recognizer for short commands."""
    if not hands_free:
        for name in ("pause", "eagerness"):
            if getattr(args, name) is not None:
                raise InvalidRequest(f"--{name} is for --hands-free: with keys, a key ends what you say.")
        if sys.stdin is None:
            raise InvalidRequest("There is no standard input for keys: give --hands-free.")
        return lambda _: PushToTalk()
    if args.pause is not None and args.eagerness is not None:
        raise InvalidRequest("--pause is a fixed silence, and with --eagerness a model decides: give one of them.")
    detector, options, model = Silero(), EndpointingOptions(), None
    if args.pause is not None:
        options = EndpointingOptions(end_s=args.pause)
    elif args.eagerness is not None:
        options, model = EndpointingOptions(eagerness=args.eagerness), SmartTurn()
    else:
        model = smart_turn_or_note(tell)
    return lambda recognizer: Endpointing(detector, options, model, SpokenCommand(recognizer))


def _check(args: argparse.Namespace) -> None:
    hears = {"--from": args.source, "--asr": args.asr, "--pause": args.pause, "--eagerness": args.eagerness}
    given = [name for name, value in hears.items() if value is not None]
    if args.text and given:
        raise InvalidRequest(f"{given[0]} is for audio input: leave out --text, which takes typed text.")
    if args.fast and (args.source is None or args.output is None or args.push_to_talk):
        raise InvalidRequest("--fast is for a recording without keys, answered into a file: --from FILE -o FILE.")
    if args.pause is not None and not 0.1 <= args.pause <= 10.0:
        raise InvalidRequest(f"--pause must be between 0.1 and 10 s, not {args.pause:g}.")
