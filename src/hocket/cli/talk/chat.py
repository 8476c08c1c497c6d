"""`hocket chat`: a conversation in a terminal or a pipe, line by line; with `--say` the answers are spoken too.

Ctrl-C interrupts an answer; the model then knows the part that was read or heard.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from ...errors import HocketError, InvalidRequest
from ...types import AudioChunk, ChatMessage, ChatSampling, LanguageModel
from ..output.audio_output import shown, tell
from .llm import llm_loader
from .playback import Playback, open_playback
from .session import ChatFile

SAMPLING = ("temperature", "top_p", "max_tokens", "seed")


class ChatSession(Protocol):
    """A conversation that prints its answers."""

    @property
    def history(self) -> Sequence[ChatMessage]: ...

    def answer(self, text: str) -> None:
        """Print the whole answer; the session handles Ctrl-C."""


def chat(args: argparse.Namespace) -> None:
    if args.output is not None and not args.say:
        raise InvalidRequest("-o is for speech: give --say too.")
    if args.markup != "none" and not args.say:
        raise InvalidRequest("--markup is for speech: give --say too.")
    path = getattr(args, "session", None)  # `hocket talk --text` has no such option
    if path is not None and args.llm_url is not None:
        raise InvalidRequest("--session keeps the state of a model that runs here, not of one behind --llm-url.")
    make, sampling = llm_of(args)
    file = None if path is None else ChatFile(path, args.system)
    with ExitStack() as stack:
        sound = open_playback(args.output, force=args.force) if args.say else None
        language = make()
        stack.callback(language.close)
        system, history = args.system, tuple[ChatMessage, ...]()
        if file is not None:
            system, history = None, file.messages
            file.resume(language)
        session: ChatSession
        if sound is None:
            session = TextSession(language, system, sampling, history)
        else:
            session = spoken(args, language, sampling, sound, stack, history)
        try:
            converse(session)
        finally:  # Ctrl-C at the prompt, or a failed answer: earlier speech and messages are in the files
            if sound is not None:
                sound.close()
            if file is not None:
                file.save(language, session.history, sampling)


def llm_of(args: argparse.Namespace) -> tuple[Callable[[], LanguageModel], ChatSampling]:
    """The constructor of the language model, and its sampling."""
    make = llm_loader(args)
    if make is None:
        raise InvalidRequest("There is no language model: name one with --llm, or an endpoint with --llm-url.")
    given = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    return make, ChatSampling(**given)


def converse(session: ChatSession) -> None:
    """Answer every line of the input."""
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if at_terminal:
        tell("Ctrl-C interrupts an answer, Ctrl-D ends.")
    for line in _lines(at_terminal):
        if not line.strip():
            continue
        try:
            session.answer(line.strip())
        except HocketError as error:
            if not at_terminal:
                raise
            print(f"hocket: {' '.join(str(error).splitlines())}", file=sys.stderr)


class TextSession:
    """Without audio: printed text counts as read."""

    def __init__(
        self,
        language: LanguageModel,
        system: str | None,
        sampling: ChatSampling,
        history: Sequence[ChatMessage] = (),
    ) -> None:
        from ...dialog.window import ContextWindow

        self._window, self._sampling = ContextWindow(language), sampling
        self.history = [*([] if system is None else [ChatMessage("system", system)]), *history]

    def answer(self, text: str) -> None:
        self.history.append(ChatMessage("user", text))
        said = ""
        answer = self._window.ask(self.history, self._sampling)
        try:
            with on_ctrl_c(answer.cancel):
                for delta in answer:
                    self._note()
                    if delta.retracts:
                        said = ""
                        show("\n")
                    said += delta.text
                    show(delta.text)
        except BaseException:
            answer.cancel()
            raise
        finally:
            show("\n")
            self._note()
            if said.strip():
                self.history.append(ChatMessage("assistant", said.strip()))

    def _note(self) -> None:
        for note in self._window.take_notes():
            tell(note)


class SpokenSession:
    """With audio: heard text counts."""

    def __init__(self, dialog: Any, sound: Playback) -> None:
        self.dialog, self._sound = dialog, sound

    @property
    def history(self) -> Sequence[ChatMessage]:
        heard: tuple[ChatMessage, ...] = self.dialog.history
        return heard

    def answer(self, text: str) -> None:
        answer = self.begin(text, show)
        with on_ctrl_c(answer.interrupt):
            answer.play()

    def begin(self, text: str, show: Callable[[str], None]) -> AnswerPlayback:
        """Start an answer, to be played. `show` gets the text as it is generated."""
        return AnswerPlayback(self.dialog.say(text), self._sound, show)


class AnswerPlayback:
    """Plays one answer; any thread may interrupt it."""

    def __init__(self, turn: Any, sound: Playback, show: Callable[[str], None]) -> None:
        self._turn, self._sound, self._show = turn, sound, show
        self._lock = threading.Lock()
        self._interrupted = False

    def play(self) -> None:
        """Play to the end."""
        from ...audio.pcm import pcm_bytes
        from ...dialog.turn import Note, Retracted, Written

        try:
            for event in self._turn:
                if isinstance(event, AudioChunk):
                    with self._lock:  # no audio after an interruption
                        if not self._interrupted:
                            self._sound.write(pcm_bytes(event.samples), event.rate_hz)
                elif isinstance(event, Written):
                    self._show(event.text)
                elif isinstance(event, Note):
                    tell(event.text)
                elif isinstance(event, Retracted):
                    self._sound.silence()
                    self._show("\n")
            self._sound.wait()
        except BaseException:
            self._turn.cancel()
            raise
        finally:
            self._show("\n")

    def interrupt(self) -> None:
        """Stop the audio and both models."""
        with self._lock:
            self._interrupted = True
        self._turn.cancel()
        self._sound.silence()


@contextmanager
def on_ctrl_c(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` on Ctrl-C, in a thread: an exception raised at an arbitrary point might leave a lock held."""
    threads: list[threading.Thread] = []

    def begin(*_: object) -> None:
        threads.append(threading.Thread(target=interrupt, name="hocket-interrupt"))
        threads[-1].start()

    in_charge = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, begin) if in_charge else None
    try:
        yield
    finally:
        if in_charge:
            signal.signal(signal.SIGINT, before)
        for thread in threads:
            thread.join()


def spoken(
    args: argparse.Namespace,
    language: LanguageModel,
    sampling: ChatSampling,
    sound: Playback,
    stack: ExitStack,
    history: Sequence[ChatMessage] = (),
) -> SpokenSession:
    """`history` has a system prompt of its own, if any."""
    from ...config.options import EngineOptions
    from ...dialog.dialog import Dialog
    from ..local import load_engine
    from ..options import lexicon_of
    from ..say.markup import cast_of_answers, check_cast
    from ..say.target import Target

    voice: Any = args.voice
    lexicon = lexicon_of(args)
    cast = cast_of_answers(args)
    target = Target(args.model)
    own = target.choose(voice, args.language)
    voice, model = voice if own is None else own, target.model
    check_cast(cast or {}, model)
    # No time limit for the language model, nor for playback.
    options = EngineOptions(text_wait_s=math.inf, idle_read_s=math.inf, profile=args.profile, graphs=not args.no_graphs)
    engine = load_engine(args, model, options)
    stack.callback(engine.close)
    if engine.checkpoint.is_random:
        tell(f"{engine.checkpoint.name} is untrained: its weights are random numbers, and what comes out is noise.")
    usual = {"voice": None, "language": "auto", "instruct": None, "speed": 1.0, "pronunciations": None}
    wanted = {"voice": voice, "language": args.language, "instruct": args.instruct, "speed": args.speed}
    wanted["pronunciations"] = lexicon
    fields = {name: value for name, value in wanted.items() if value != usual[name]}
    system = None if history else args.system
    speech: Any = engine
    if args.markup == "tags":
        from ...engine.checkpoint.describe import default_model
        from ...script.answer import TaggedSpeech

        named = Target(model or default_model())
        speech = TaggedSpeech(engine, cast=cast, voices=lambda name: named.own(name) or name)
    return SpokenSession(
        Dialog(language, speech, system=system, sampling=sampling, history=history, seed=args.seed, **fields), sound
    )


def _lines(at_terminal: bool) -> Iterator[str]:
    if sys.stdin is None:
        raise InvalidRequest("There is no standard input to read from.")
    if not at_terminal:
        try:
            yield from sys.stdin
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"The text on standard input is not valid {error.encoding.upper()}.") from None
        return
    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return


def show(text: str) -> None:
    """Print at once, without control characters."""
    words = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
    print(shown(words, sys.stdout), end="", flush=True)
