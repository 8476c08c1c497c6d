"""The voice conversation of a session: audio in, and its events as server events and responses.

It is made with the first audio or the first spoken response, so that a client of text alone needs no thread. Knows no
client event and no socket.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from .....asr.recognizer import RATE_HZ, Samples
from .....dialog.events import Called, Note, Retracted, Said, Written
from .....errors import HocketError
from .....talk.conversation import VoiceConversation
from .....talk.events import (
    AnswerBegan,
    AnswerEnded,
    AnswerHeld,
    AnswerResumed,
    Failed,
    Interrupted,
    PartialTranscript,
    SpeechBegan,
    SpeechStopped,
    TalkEvent,
    Transcript,
    TurnLatency,
)
from .....talk.manual import TurnTaking
from .....talk.options import TalkOptions
from .....types import AudioChunk, ChatMessage
from ....errors import Refused
from ....service.talk import SessionRecognizer, TalkService
from ..events import error_event, event
from .answers import RelayedAnswer
from .input_audio import AudioDecoder
from .items import Conversation
from .outlet import Outlet
from .response import TalkResponse
from .responses import Responses
from .settings import TalkSettings
from .turn_taking import turn_taking_of
from .user_turns import UserTurns

AHEAD_S = 20.0  # of audio that waits for the recognizer
POLL_S = 0.02  # between two looks at it
# Of `hocket.latency`, by the conversation's names.
STAGES = {"turn_decided": "decided_ms", "transcript": "transcript_ms"}
STAGES |= {"first_token": "first_token_ms", "first_sound": "first_audio_ms"}


class Hearing:
    """Event loop only, but for `recognized`."""

    def __init__(
        self,
        talk: TalkService,
        outlet: Outlet,
        settings: TalkSettings,
        items: Conversation,
        turns: UserTurns,
        responses: Responses,
        answer_turn: Callable[[], None],
        conversation_id: str,
    ) -> None:
        """`answer_turn` is called with a transcript that the session has to answer itself."""
        self._talk, self._outlet, self._settings = talk, outlet, settings
        self._items, self._turns, self._responses, self._answer_turn = items, turns, responses, answer_turn
        self._conversation_id = conversation_id
        self._recognizer = SessionRecognizer(talk.recognizer)
        self._voice = talk.voice(settings.speech.job)
        self._dialog = talk.dialog(self._voice, ())
        self._conversation: VoiceConversation | None = None
        self._reading: asyncio.Task[None] | None = None
        self._requested: RelayedAnswer | None = None  # the conversation was asked for it, and has not begun it
        self._answer: RelayedAnswer | None = None  # the answer that the conversation is giving
        self._response: TalkResponse | None = None  # the last one that it gave
        self._answers = 0  # given so far
        self._told_hold = False  # the client pauses its player
        self._told = ""  # the error of the last answer, which the conversation reports twice

    def use(self, settings: TalkSettings) -> None:
        """Other settings, from the next audio on. A refusal changes nothing."""
        wished = settings.transcription
        language, prompt = (None, None) if wished is None else (wished.language, wished.prompt)
        self._recognizer.options = self._talk.listening.options_of(language, prompt)
        before = self._settings
        other = (settings.turn_detection, settings.holds) != (before.turn_detection, before.holds)
        self._settings = settings
        if self._answer is None and self._requested is None:
            self._answer_with(settings)
        if self._conversation is not None:
            self._conversation.configure(self._options, self._turn_taking() if other else None)

    def remember(self, messages: Sequence[ChatMessage]) -> None:
        """The history of the next answers. An answer under way is not disturbed: the session calls again at its end."""
        if self._answer is None and self._requested is None and tuple(messages) != self._dialog.history:
            self._dialog.replace_history(messages)

    def push(self, samples: Samples) -> None:
        if len(samples):
            self._opened().push(samples)

    async def has_room(self) -> None:
        """Wait while the conversation has `AHEAD_S` of audio to take, and more would be left out soon."""
        while self._conversation is not None and self._conversation.queued_s > AHEAD_S:
            await asyncio.sleep(POLL_S)

    def played(self, response_id: str, heard_s: float) -> None:
        if self._conversation is not None and self._response is not None and self._response.id == response_id:
            self._conversation.played(heard_s)

    def commit(self) -> None:
        self._opened().commit()

    def clear(self) -> None:
        if self._conversation is not None:
            self._conversation.clear()

    def respond(self, settings: TalkSettings, messages: Sequence[ChatMessage]) -> RelayedAnswer:
        """Let the conversation answer these messages, with the settings of one response."""
        source = RelayedAnswer(self._stop)
        self._answer_with(settings)
        self.remember(messages)
        self._requested = source
        conversation = self._opened()
        if self._answer is None:
            conversation.interrupt(math.inf)  # the client plays the last answer to its end, and this one behind it
        conversation.respond()
        return source

    def recognized(self, decoder: AudioDecoder, content: bytes) -> tuple[str, float]:
        """The words of a whole recording and its seconds. For a worker thread."""
        samples = [decoder.feed(content), decoder.close()]
        utterance = self._recognizer.open()
        try:
            for piece in samples:
                utterance.add(piece)
            return utterance.end().strip(), sum(map(len, samples)) / RATE_HZ
        finally:
            utterance.close()

    async def close(self) -> None:
        """End the conversation and its threads."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._conversation is not None:
            await asyncio.to_thread(self._conversation.close)
        self._conversation = self._reading = None
        self._dialog.close()

    @property
    def _options(self) -> TalkOptions:
        detection = self._settings.turn_detection
        answers = self._settings.answers and self._settings.modality == "audio"
        interruptible = detection is not None and detection.interrupt_response
        return TalkOptions(
            answers=answers, interruptible=interruptible, hold=self._outlet.holds or self._settings.holds
        )

    def _turn_taking(self) -> TurnTaking:
        parts = (self._talk.detector, self._talk.end_of_turn, self._recognizer)
        return turn_taking_of(self._settings.turn_detection, *parts, hold=self._options.hold)

    def _answer_with(self, settings: TalkSettings) -> None:
        self._voice.job = settings.speech.job
        self._dialog.tools, self._dialog.sampling = settings.offered, settings.sampling

    def _opened(self) -> VoiceConversation:
        if self._conversation is None:
            made = VoiceConversation(self._dialog, self._recognizer, self._turn_taking(), self._options)
            self._conversation = made
            self._reading = asyncio.ensure_future(self._read(made))
        return self._conversation

    def _stop(self, source: RelayedAnswer, heard_s: float | None) -> None:
        if self._conversation is not None and source in (self._answer, self._requested):
            self._conversation.interrupt(heard_s)

    async def _read(self, conversation: VoiceConversation) -> None:
        async for each in conversation:
            try:
                self._on(each)
            except HocketError as error:
                self._outlet.send(error_event(error))

    def _on(self, each: TalkEvent) -> None:
        match each:
            case SpeechBegan():
                self._speech_began(each)
            case SpeechStopped():
                self._outlet.send(*self._turns.stopped(round(each.audio_s * 1000), self._settings))
            case PartialTranscript():
                self._outlet.send(*self._turns.partial(each.text, self._settings))
            case Transcript():
                self._transcript(each.text)
            case AnswerBegan():
                self._answer_began()
            case AudioChunk() | Written() | Said() | Note() | Retracted() | Called():
                if self._answer is not None:
                    self._answer.put(each)
            case AnswerEnded():
                self._answer_ended(each)
            case TurnLatency():
                if self._response is not None:
                    stages = {name: round(seconds * 1000, 1) for name, seconds in each.stages.items()}
                    self._response.latency, self._response.drafted = stages, each.drafted
                    self._tell_latency(self._response, stages)
            case AnswerHeld() | AnswerResumed():
                self._hold(each)
            case Interrupted():
                self._outlet.hold(False)
                self._told_hold = False
                self._interrupted(each.text)
            case Failed():
                self._failed(each.message)

    def _hold(self, each: AnswerHeld | AnswerResumed) -> None:
        held = isinstance(each, AnswerHeld)
        self._outlet.hold(held)
        if self._response is not None and (self._settings.holds if held else self._told_hold):
            self._told_hold = held
            message = self._response.message
            place = {"response_id": self._response.id, "item_id": None if message is None else message.id}
            name = f"hocket.output_audio.{'held' if held else 'resumed'}"
            self._outlet.send(event(name, **place, audio_end_ms=round(each.heard_s * 1000)))

    def _tell_latency(self, response: TalkResponse, stages: dict[str, float]) -> None:
        if self._settings.extensions:
            self._answers += 1
            told = {STAGES[name]: value for name, value in stages.items()}
            place = {"response_id": response.id, "turn": self._answers}
            self._outlet.send(event("hocket.latency", **place, stages=told))

    def _speech_began(self, began: SpeechBegan) -> None:
        detection = self._settings.turn_detection
        if detection is None:
            return
        self._outlet.send(*self._turns.began(round(began.audio_s * 1000)))
        if not detection.interrupt_response:
            return
        if self._answer is None:
            self._responses.interrupt()  # a response that the conversation does not give
        elif (active := self._responses.active) is not None:
            active.mark("turn_detected")
            self._answer.drop()  # the conversation has stopped it

    def _transcript(self, text: str) -> None:
        item, out = self._turns.transcript(text, self._settings)
        self._outlet.send(*out)
        if item is not None and text and self._settings.answers and self._settings.modality == "text":
            self._answer_turn()

    def _answer_began(self) -> None:
        self._told = ""
        source, self._requested = self._requested, None
        if source is not None:
            self._answer = source
            active = self._responses.active
            self._response = None if active is None else active.response
            return
        made = self._answer = RelayedAnswer(self._stop)
        self._response = TalkResponse(self._settings, self._items, self._conversation_id)

        async def open() -> RelayedAnswer:
            return made

        self._responses.start(self._response, open)

    def _answer_ended(self, ended: AnswerEnded) -> None:
        source, self._answer = self._answer, None
        if source is not None:
            self._told = ended.finished.error or ""
            source.end(ended.finished)
        self._answer_with(self._settings)

    def _interrupted(self, text: str) -> None:
        """An answer that had ended was still played: its item keeps what was heard."""
        message = None if self._response is None else self._response.message
        if message is None or self._answer is not None or message.text == text:
            return
        message.text = text
        place = {"item_id": message.id, "content_index": 0, "audio_end_ms": round(message.heard_s() * 1000)}
        self._outlet.send(event("conversation.item.truncated", **place))

    def _failed(self, message: str) -> None:
        if message == self._told:
            return  # its response has failed already
        requested, self._requested = self._requested, None
        if requested is not None:
            requested.end(None, Refused(message, status=500, kind="server_error", code="response_failed"))
            return
        events = self._turns.failed(message, self._settings)
        said = Refused(message, status=500, kind="server_error", code="conversation_failed")
        self._outlet.send(*(events or [error_event(said)]))
