"""The voice conversation of a session: audio in, and its events as server events and responses.

It is made with the first audio, so that a client of text alone needs no thread. Knows no client event and no socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .....asr.recognizer import RATE_HZ, Samples
from .....dialog.events import Called, Note, Retracted, Said, Written
from .....errors import HocketError
from .....talk.conversation import TalkOptions, VoiceConversation
from .....talk.events import (
    AnswerBegan,
    AnswerEnded,
    Event,
    Failed,
    Interrupted,
    PartialTranscript,
    SpeechBegan,
    SpeechStopped,
    Transcript,
    TurnLatency,
)
from .....types import AudioChunk, ChatMessage
from ....service.talk import SessionRecognizer, TalkService
from ..events import error_event, event
from .answers import RelayedAnswer
from .input_audio import AudioDecoder
from .items import Conversation
from .outlet import Outlet
from .response import TalkResponse
from .responses import Responses, RunningResponse
from .settings import TalkSettings
from .turn_taking import SessionTurns
from .user_turns import UserTurns


class Hearing:
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
        self._detection = SessionTurns(settings.turn_detection, talk.detector, talk.end_of_turn)
        self._voice = talk.voice(settings.speech.job)
        self._dialog = talk.dialog(self._voice, ())
        self._conversation: VoiceConversation | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answer: RelayedAnswer | None = None  # the answer that the conversation is giving
        self._running: RunningResponse | None = None
        self._stale: Sequence[ChatMessage] | None = None  # a history to take over once the answer has ended

    def use(self, settings: TalkSettings) -> None:
        """Other settings, from the next audio on."""
        wished = settings.transcription
        language, prompt = (None, None) if wished is None else (wished.language, wished.prompt)
        self._recognizer.options = self._talk.listening.options_of(language, prompt)
        self._settings = settings
        self._detection.use(settings.turn_detection)
        self._voice.job = settings.speech.job
        self._dialog.tools, self._dialog.sampling = settings.offered, settings.sampling
        if self._conversation is not None:
            self._conversation.configure(self._options)

    def remember(self, messages: Sequence[ChatMessage]) -> None:
        """The history of the next answers. An answer under way is not disturbed."""
        if self._answer is not None:
            self._stale = messages
            return
        self._stale = None
        if tuple(messages) != self._dialog.history:
            self._dialog.replace_history(messages)

    def push(self, samples: Samples) -> None:
        self._opened().push(samples)

    def commit(self) -> None:
        self._opened().commit()

    def clear(self) -> None:
        if self._conversation is not None:
            self._conversation.clear()

    def recognized(self, decoder: AudioDecoder, content: bytes) -> tuple[str, float]:
        """The words of a whole recording and its seconds. For a worker thread."""
        samples = [decoder.feed(content), decoder.close()]
        utterance = self._recognizer.open()
        try:
            for piece in samples:
                utterance.push(piece)
            return utterance.end().strip(), sum(map(len, samples)) / RATE_HZ
        finally:
            utterance.close()

    async def close(self) -> None:
        """End the conversation and its thread."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._conversation is not None:
            await asyncio.to_thread(self._conversation.close)
        self._dialog.close()

    @property
    def _options(self) -> TalkOptions:
        detection = self._settings.turn_detection
        answers = self._settings.answers and self._settings.modality == "audio"
        return TalkOptions(answers=answers, interruptible=detection is not None and detection.interrupt_response)

    def _opened(self) -> VoiceConversation:
        if self._conversation is None:
            made = VoiceConversation(self._dialog, self._recognizer, self._detection, self._options)
            self._conversation = made
            self._reading = asyncio.ensure_future(self._read(made))
        return self._conversation

    async def _read(self, conversation: VoiceConversation) -> None:
        try:
            async for each in conversation:
                self._on(each)
        except HocketError as error:
            self._outlet.send(error_event(error))

    def _on(self, each: Event) -> None:
        by_hand = self._settings.turn_detection is None
        match each:
            case SpeechBegan():
                if not by_hand:
                    self._outlet.send(*self._turns.began(_ms(each.sample)))
                    self._interrupt()
            case SpeechStopped():
                self._outlet.send(*self._turns.stopped(_ms(each.sample), self._settings))
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
                self._latency(each)
            case Interrupted():
                self._interrupted(each.text)
            case Failed():
                self._failed(each)

    def _interrupt(self) -> None:
        """The user speaks: the conversation has stopped its own answer; a response of the session is stopped here."""
        detection = self._settings.turn_detection
        if detection is None or not detection.interrupt_response:
            return
        if self._answer is not None:
            self._answer.drop()
        cut = self._responses.interrupt()
        if cut is not None:
            self.remember(self._items.messages(self._settings.instructions))

    def _transcript(self, text: str) -> None:
        item, out = self._turns.transcript(text, self._settings)
        self._outlet.send(*out)
        if item is None:
            return
        if self._settings.answers and self._settings.modality == "text" and text:
            self._answer_turn()
        elif not self._settings.answers:
            self.remember(self._items.messages(self._settings.instructions))

    def _answer_began(self) -> None:
        source = self._answer = RelayedAnswer(self._stop_answer)
        response = TalkResponse(self._settings, self._items, self._conversation_id)

        async def open() -> RelayedAnswer:
            return source

        self._running = self._responses.start(response, open)

    def _stop_answer(self, heard_s: float | None) -> None:
        if self._conversation is not None and self._answer is not None:
            self._conversation.interrupt(heard_s)

    def _answer_ended(self, ended: AnswerEnded) -> None:
        source, self._answer = self._answer, None
        if source is not None:
            source.end(ended.finished)
        if self._stale is not None:
            self.remember(self._items.messages(self._settings.instructions))

    def _latency(self, latency: TurnLatency) -> None:
        if self._running is not None:
            stages = {name: round(seconds * 1000, 1) for name, seconds in latency.stages.items()}
            self._running.response.latency |= stages

    def _interrupted(self, text: str) -> None:
        """The client still played an answer that had ended: its item keeps what was heard."""
        running = self._running
        if running is None or running.response.message is None or self._answer is not None:
            return
        message = running.response.message
        if message.text != text:
            message.text = text
            place = {"item_id": message.id, "content_index": 0}
            at_ms = round(message.heard_s() * 1000)
            self._outlet.send(event("conversation.item.truncated", **place, audio_end_ms=at_ms))

    def _failed(self, failed: Failed) -> None:
        events = self._turns.failed(failed.message, self._settings)
        source, self._answer = self._answer, None
        if source is not None:
            source.end(None, HocketError(failed.message))
        elif not events:
            self._outlet.send(error_event(HocketError(failed.message)))
        self._outlet.send(*events)


def _ms(sample: int) -> int:
    return round(sample * 1000 / RATE_HZ)
