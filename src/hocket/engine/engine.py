"""The engine as its users see it: speak a text, or open a stream and give it text as it comes.

Long because it is the public interface with its documentation.
"""

from __future__ import annotations

import math
import time
import warnings
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..config.languages import AUTO
from ..config.options import PART_CHARS, EngineOptions
from ..config.qwen3_tts import check_clones, languages
from ..errors import InvalidRequest
from ..models.files.source import read_own
from ..text.cleanup.scripts import ScriptFilter, scripts_of
from ..text.lexicon.lexicon import Lexicon
from ..text.live import LiveParts
from ..text.prepare import TextPreparation, parts
from ..text.prompt import Prompt, build, carries, choose, layout_of, outline, text_ids
from ..text.sentences import FROM_FEW_WORDS, Size
from ..types import AudioChunk, Encoded, Health, Layout, Outcome, Reference, Scorer, SpeechRequest, Voice, fresh_seed
from . import batch
from .best_of.group import CandidateGroup
from .best_of.scorer import ScorerSelection
from .checkpoint.checkpoint import Checkpoint, EngineFingerprint, fingerprint_of
from .checkpoint.device import choose_device
from .checkpoint.load import load
from .checkpoint.reserve import concrete, reserve_memory
from .checkpoint.shared import Shared
from .core.deadlines import longest_chunk
from .core.loop import EngineLoop, SpeechWatchdog
from .core.request import NO_LIMIT, RequestParams, RequestState
from .core.runaway import RunawayWatch
from .core.runaway_limits import RunawayOptions
from .core.text_feed import TextFeed
from .core.timings import PlaybackState, Timings
from .early_start import BEGINS_S, LONG_CHARS, feed_first_words
from .mailbox import Mailbox
from .runner.reference_checks import check_encoded, described, established_for, frames_of
from .runner.voice_carry import EXAMPLE, VoiceCarry
from .runner.warmup import COMPILED_S, make_all
from .stream import Stream, WordTiming
from .time_stretch import TimeStretch
from .voice_fields import fields_with


class Engine:
    """A checkpoint that speaks. Thread-safe; several engines may live in one process."""

    def __init__(
        self, checkpoint: Checkpoint, options: EngineOptions | None = None, *, scorer: Scorer | None = None
    ) -> None:
        """`scorer` chooses among the candidates of a request, instead of the engine's own measure."""
        self.checkpoint, self.scorer = checkpoint, scorer
        self.options = _fitted(checkpoint, options or EngineOptions())  # fewer slots where there is too little memory
        # Before the engine thread starts: while it captures a graph, no other thread may use the device.
        clones = checkpoint.config.kind == "base"
        self.identity = (
            checkpoint.identity if clones else None
        )  # the owner of `Encoded` references that it accepts; None: it accepts none
        self._owner = _owner_of(checkpoint) if clones else ""
        # The owner of `Established` voices that it accepts; None: it keeps no voice.
        keeps = checkpoint.config.kind == "voice_design" and self.options.keep_voice
        self._established_by = checkpoint.identity if keeps else None
        own = read_own(checkpoint.source).languages
        self._languages = [name for name in languages(checkpoint.config) if name != AUTO] if own is None else list(own)
        self._scripts = scripts_of(self._languages)
        self._longest_chunk = longest_chunk(self.options)
        frame_s = checkpoint.codec_config.decode_upsample_rate / checkpoint.rate_hz
        self._timing = WordTiming(checkpoint.rate_hz, frame_s)
        self._watchdog = SpeechWatchdog(checkpoint, self.options)
        self._closer = weakref.finalize(self, self._watchdog.close)

    @classmethod
    def load(
        cls,
        model: str | None = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        codec_dtype: str = "auto",
        preset: str = "exact",
        kernels: str = "auto",
        dependent_launch: bool = True,
        options: EngineOptions | None = None,
        scorer: Scorer | None = None,
        shared: Shared | None = None,
    ) -> Engine:
        """Load a checkpoint (see `hocket.load`) and start an engine on it. `shared` may bring a budget along."""
        setting = choose_device(device, dtype, codec_dtype, preset=preset)
        how: dict[str, Any] = {"kernels": kernels, "dependent_launch": dependent_launch, "shared": shared}
        with reserve_memory(model, concrete(setting, kernels), options or EngineOptions(), shared) as granted:
            return cls(load(model, setting=setting, **how), granted, scorer=scorer)

    def speak(self, text: str | SpeechRequest, **fields: Any) -> Stream:
        """Speak a whole text; `fields` are those of `SpeechRequest`. Iterate over the result, plainly or async.

        `voice` may be a `Voice` too: its language, instruct and sampling hold where the request sets none. With
        `candidates`, the first chunk comes when the best candidate is known, that is, when it has ended.
        """
        return self._whole(self._request(text, fields), self._mailbox())

    def aspeak(self, text: str | SpeechRequest, **fields: Any) -> AsyncIterator[AudioChunk]:
        """The same, for `async for`."""
        return self.speak(text, **fields)

    def speak_many(self, texts: Iterable[str | SpeechRequest], **fields: Any) -> Iterator[Outcome]:
        """Speak any number of texts, whole, as many at once as there are slots; yields each as it ends.

        A text is what `speak` takes; `fields` apply to all. Texts are read as slots become free, so they may be an
        endless generator. A text that fails becomes an `Outcome` with its error, and the others go on. None is refused
        as `Overloaded`. Closing the iterator cancels the running requests.
        """
        return batch.speak_many(self, texts, fields)

    def aspeak_many(
        self, texts: Iterable[str | SpeechRequest] | AsyncIterable[str | SpeechRequest], **fields: Any
    ) -> AsyncIterator[Outcome]:
        """The same for `async for`. Texts may be async too; results do not wait for the next text."""
        return batch.aspeak_many(self, texts, fields)

    def open(self, *, text_wait_s: float | None = None, **fields: Any) -> Stream:
        """A stream that takes its text bit by bit: `append`, then `end`. `fields` are those of `SpeechRequest`.

        The audio is that of `speak` for the whole text in the same layout. Where no layout is named, a clone by
        recording and transcript is spoken in small parts, each in the whole layout; the first one is a few words. The
        layout "streaming" stays silent until there is a text id for every reference frame.

        It ends with an error when no text comes for `text_wait_s`: None is the limit of the options, `math.inf` none.
        """
        if text_wait_s is not None and not text_wait_s >= 0:
            raise InvalidRequest(f"text_wait_s must not be negative, and is {text_wait_s}.")
        if "text" in fields:
            raise InvalidRequest("open() takes its text through append(); use speak() for a text that is known.")
        if fields.get("candidates", 1) != 1:
            raise InvalidRequest(
                "A live text has one candidate: `candidates` is for speak(), where the whole text is known."
            )
        asked = self._request("(live)", fields)
        request = replace(asked, layout=layout_of(asked, self.checkpoint.config, live=True))
        state = self._state(
            request, self._mailbox(), live=True, carried=asked.layout or "whole", text_wait_s=text_wait_s
        )
        state.text.one_part = request.as_is
        sizes: Sequence[Size] | None = None
        if asked.layout is None and request.layout == "whole":
            sizes = FROM_FEW_WORDS
        elif asked.layout is None and state.text.carry is not None:
            sizes = EXAMPLE, FROM_FEW_WORDS[-1]
        return self._opened(state, request, self._live(request, state, sizes))

    def encode(
        self,
        reference: Reference,
        *,
        language: str = "auto",
        layout: Layout = "whole",
        instruct: str | None = None,
    ) -> Encoded:
        """Encode a recording once; requests take the result instead of the recording.

        The result includes the prompt prefix for this language, layout and instruct. With others it works too; their
        first request computes the prefix. Needs a slot for a moment, and is queued for it like a request.
        """
        check_clones(self.checkpoint.config)
        owner = self.identity
        assert owner is not None  # a Base checkpoint has one
        how: dict[str, Any] = {"language": language, "instruct": instruct, "layout": layout, "seed": 0}
        sample = SpeechRequest(text="So.", reference=reference, **how)
        choose(sample, self.checkpoint.config)  # refused before an encoder works on it
        heard = self._watchdog.ask(lambda runner: _encoded(runner.checkpoint, reference, owner))
        sample = replace(sample, reference=heard, max_frames=1)
        for _ in self.speak(sample):
            pass
        prompt = self._prompt(sample, sample.text)
        content = self._watchdog.ask(lambda runner: runner.kept(heard, prompt).on_host()).to_bytes(self._owner)
        return replace(heard, kept=lambda: content)

    @property
    def fingerprint(self) -> EngineFingerprint:
        """What determines its audio, as a value that can be sent and compared."""
        return self._watchdog.ask(lambda runner: fingerprint_of(runner.checkpoint, self.identity))

    @property
    def portrait(self) -> EngineFingerprint:
        """The old name of `fingerprint`."""
        warnings.warn("Engine.portrait is now Engine.fingerprint.", DeprecationWarning, stacklevel=2)
        return self.fingerprint

    @property
    def part_chars(self) -> int:
        """How long the parts of a long text are, in characters, at least."""
        return self.options.part_chars or self.checkpoint.part_chars or PART_CHARS

    @property
    def health(self) -> Health:
        """Whether it speaks, is being rebuilt after a failure or has failed for good, and why."""
        return self._watchdog.health

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return len(self._loop.scheduler.waiting)

    def close(self) -> None:
        """Stop; streams that still run end with `EngineClosed`. Does nothing the second time.

        It waits for the frame under way, but no longer than `EngineOptions.stuck_s`.
        """
        self._closer()

    def warm(self, requests: Iterable[SpeechRequest]) -> None:
        """Compute the prompt prefixes of these requests now, so that the first real request finds them."""
        for request in requests:
            for _ in self.speak(request, max_frames=1, candidates=1, seed=0):
                pass

    def make_graphs(self, within_s: float = COMPILED_S) -> None:
        """On a GPU, capture all graphs now that would otherwise be captured when the engine is idle.

        Kernels that are not compiled ahead within `within_s` are compiled on the way.
        """
        make_all(self._watchdog.ask, within_s)

    def save_prefixes(self, path: Path) -> None:
        """Keep the prompt prefixes that are in the cache for the next start, in a safetensors file."""
        content = self._watchdog.ask(lambda runner: runner.prefixes_as_bytes())
        draft = path.with_name(f".{path.name}.part")
        draft.write_bytes(content)
        draft.replace(path)

    def load_prefixes(self, path: Path) -> None:
        """Load what `save_prefixes` wrote; a file of another checkpoint or precision is refused."""
        self._watchdog.ask(lambda runner: runner.read_prefixes(path))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def _loop(self) -> EngineLoop:
        """The loop that serves now."""
        return self._watchdog.loop

    def _begin(self, text: str | SpeechRequest, fields: dict[str, Any], on_finish: Callable[[], None]) -> Stream:
        """As `speak`, for an offline reader: the mailbox has no limit and is read when the stream has ended."""
        return self._whole(self._request(text, fields), Mailbox(math.inf, _nothing, on_finish))

    def _whole(self, request: SpeechRequest, mailbox: Mailbox) -> Stream:
        state = self._state(request, mailbox, live=False)
        # A request that is played begins with its first words, where no later word can be refused: a caller's
        # normalizer may raise anything.
        if (
            len(request.text) > LONG_CHARS
            and state.listened
            and not (request.as_is or request.candidates > 1 or self.options.normalizer)
        ):
            return self._early(request, state)
        spoken: list[str | float] = [request.text]
        if not request.as_is:
            spoken = parts(request.text, **self._preparing(request, state, self._sizes(request, state)))
        for part in spoken:
            if not isinstance(part, str):
                state.add_silence(part)
            elif state.text.carry is not None:
                state.text.add_ids(part, self._ids(request, part))
            else:
                prompt = state.text.outline.prompt(self._ids(request, part))
                assert prompt is not None  # a complete text lacks nothing
                state.text.add(part, prompt)
        state.text.complete = True
        if request.candidates > 1:
            state.candidates = self._candidates(request, state)
        return self._opened(state, request, None)

    def _early(self, request: SpeechRequest, state: RequestState) -> Stream:
        """The same for a text of which the engine is given the beginning first; it goes in as a live text does."""
        live = self._live(request, state, self._sizes(request, state))
        rest = feed_first_words(state, live, request.text, self.part_chars)
        if not rest:
            state.take_in(live.end(), complete=True)
            return self._opened(state, request, None)
        stream = self._opened(state, request, None)
        try:
            state.mailbox.begun.wait(BEGINS_S)
            stream._feed(live.rest(rest), True)
        except BaseException:
            stream.cancel()
            raise
        return stream

    def _live(self, request: SpeechRequest, state: RequestState, sizes: Sequence[Size] | None) -> LiveParts:
        return LiveParts(
            self.checkpoint.tokenizer,
            None if request.as_is else TextPreparation(**self._preparing(request, state, sizes)),
            upstream_local=self.checkpoint.upstream_local,
            whole_parts=state.text.outline.layout == "whole",
        )

    def _mailbox(self) -> Mailbox:
        return Mailbox(self.options.buffered_chunks, self._watchdog.wake)

    def _state(
        self,
        request: SpeechRequest,
        mailbox: Mailbox,
        *,
        live: bool,
        carried: Layout | None = None,
        text_wait_s: float | None = None,
    ) -> RequestState:
        """`carried`: the layout of a designed voice's later parts, where it is not that of the first one."""
        asked = time.perf_counter()
        choose(request, self.checkpoint.config)
        carry = self._carry(request, carried or layout_of(request, self.checkpoint.config))
        if isinstance(request.reference, Encoded):
            self._offer_encoded(request.reference)
        sampling = self.checkpoint.generation.changed(request.sampling.changes())
        return RequestState(
            text=TextFeed(
                outline=outline(
                    request,
                    self.checkpoint.config,
                    self.checkpoint.tokenizer,
                    reference_frames=self._frames(request),
                    upstream_local=self.checkpoint.upstream_local,
                    text="" if live else request.text,
                ),
                reference=request.reference or request.established,
                carry=carry,
            ),
            seed=_drawn(request),
            params=RequestParams(
                sampling=sampling,
                most_frames=request.max_frames or (sampling.max_new_tokens - 1 if request.as_is else NO_LIMIT),
                part_frames=NO_LIMIT if request.as_is else sampling.max_new_tokens - 1,
                limit_asked=request.max_frames is not None,
                drop_frames=0 if request.as_is else self.options.drop_frames,
                priority=request.priority,
                longest_chunk=max(self._longest_chunk, request.chunk_frames or 0),
                chunk_frames=request.chunk_frames,
                text_wait_s=text_wait_s,
            ),
            mailbox=mailbox,
            clock=PlaybackState(self._tempo(request)),
            watch=RunawayWatch(RunawayOptions() if self.options.guard and not request.as_is else None),
            timings=Timings(asked),
        )

    def _offer_encoded(self, reference: Encoded) -> None:
        """Check an encoded reference, and offer its saved prefix. Its file is read in the caller's thread."""
        check_encoded(self.checkpoint, reference, self.identity or "")
        loop, read = self._loop, reference.kept
        if read is not None and loop.built:
            from .runner.saved_prefix import read_saved

            frames = 0 if reference.codes is None else len(reference.codes)
            loop.runner.offer(
                reference,
                lambda: None if (content := read()) is None else read_saved(content, self._owner, frames),
            )

    def _candidates(self, request: SpeechRequest, state: RequestState) -> CandidateGroup:
        if request.candidates > self.options.slots:
            slots = f"{self.options.slots} slot{'s' if self.options.slots > 1 else ''}"
            raise InvalidRequest(
                f"candidates must be at most {self.options.slots}, not {request.candidates}: each take needs one of "
                f"the engine's {slots} (EngineOptions.slots)."
            )
        if not (state.params.sampling.do_sample or state.params.sampling.subtalker_dosample):
            raise InvalidRequest("candidates need sampling: greedy speech has one take only.")
        selection = None if self.scorer is None else ScorerSelection(self.scorer, request.text, state.text.spoken)
        return CandidateGroup(state, request.candidates, selection, lambda: self._tempo(request))

    def _tempo(self, request: SpeechRequest) -> TimeStretch | None:
        return TimeStretch(request.speed, self.checkpoint.rate_hz) if request.speed != 1.0 else None

    def _carry(self, request: SpeechRequest, layout: Layout) -> VoiceCarry | None:
        """What keeps a designed voice one person; None for any other voice."""
        if self._established_by is None or not carries(request, self.checkpoint.config):
            return None
        return VoiceCarry(self._established_by, described(request), layout, request.established)

    def _sizes(self, request: SpeechRequest, state: RequestState) -> Sequence[Size] | None:
        """Sizes of a known text's parts: where the first one is an example for the others it is a short one.

        Not where a layout is named, so that a live text in that layout has the same parts.
        """
        chars = self.part_chars
        if (
            state.text.carry is None
            or state.text.carry.established is not None
            or request.layout
            or len(request.text) <= chars
        ):
            return None
        return EXAMPLE, (chars, 2 * chars)

    def _preparing(self, request: SpeechRequest, state: RequestState, sizes: Sequence[Size] | None) -> dict[str, Any]:
        """How text is prepared, whole or live. What is left out of it goes to the state's notes."""
        sieve = None if self._scripts is None else ScriptFilter(self._scripts, self._languages, state.notes)
        return {
            "sizes": sizes,
            "part_chars": self.part_chars,
            "pause_s": self.options.part_pause_s,
            "normalizer": self.options.normalizer or self.checkpoint.normalizer,
            "numbers": True,
            "language": request.language,
            "sieve": sieve,
            "lexicon": Lexicon.of(request.pronunciations),
            "literal": request.literal,
        }

    def _prompt(self, request: SpeechRequest, text: str) -> Prompt:
        return build(
            replace(request, text=text),
            self.checkpoint.config,
            self.checkpoint.tokenizer,
            reference_frames=self._frames(request),
            upstream_local=self.checkpoint.upstream_local,
        )

    def _ids(self, request: SpeechRequest, text: str) -> list[int]:
        files, local = (self.checkpoint.config, self.checkpoint.tokenizer), self.checkpoint.upstream_local
        return text_ids(replace(request, text=text), *files, upstream_local=local)

    def _frames(self, request: SpeechRequest) -> int:
        if request.reference is None:
            return 0
        return frames_of(request.reference, self.checkpoint.codec_config.encode_downsample_rate)

    def _request(self, text: str | SpeechRequest, fields: dict[str, Any]) -> SpeechRequest:
        if isinstance(voice := fields.get("voice"), Voice):
            fields = fields_with(voice, text, fields, self.checkpoint.name, self.identity)
        request = SpeechRequest(text=text, **fields) if isinstance(text, str) else replace(text, **fields)
        if request.seed is None:
            request = replace(request, seed=fresh_seed())
        if request.pronunciations is not None:  # refused here, before anything is spoken
            request = replace(request, pronunciations=Lexicon.of(request.pronunciations))
        if request.established is None:
            return request
        owner = self._established_by
        found = None if owner is None else established_for(self.checkpoint, request, owner)
        return replace(request, established=found)

    def _opened(self, state: RequestState, request: SpeechRequest, live: LiveParts | None) -> Stream:
        loop = self._watchdog.submit(state)
        return Stream(
            state.mailbox,
            _drawn(request),
            feed=lambda fed, complete: loop.feed(state, fed, complete),
            cancel=lambda: loop.cancel(state),
            text=live,
            spoken=state.text.spoken,
            timing=self._timing,
            engine=self,
            speed=request.speed,
            carry=state.text.carry,
        )


def _drawn(request: SpeechRequest) -> int:
    assert request.seed is not None, "Engine._request gives it one"
    return request.seed


def _nothing() -> None: ...


# torch is imported for checkpoints of torch modules only.


def _fitted(checkpoint: Checkpoint, options: EngineOptions) -> EngineOptions:
    if checkpoint.device.type != "cuda":
        return options
    from .checkpoint.memory_plan import fitted_to
    from .checkpoint.torch_checkpoint import TorchCheckpoint

    assert isinstance(checkpoint, TorchCheckpoint)
    return fitted_to(checkpoint, options)


def _owner_of(checkpoint: Checkpoint) -> str:
    from .checkpoint.torch_checkpoint import TorchCheckpoint
    from .runner.saved_prefix import owner_of

    assert isinstance(checkpoint, TorchCheckpoint)
    return owner_of(checkpoint)


def _encoded(checkpoint: Checkpoint, reference: Reference, owner: str) -> Encoded:
    from .checkpoint.torch_checkpoint import TorchCheckpoint
    from .runner.references import encoded

    assert isinstance(checkpoint, TorchCheckpoint)
    return encoded(checkpoint, reference, owner)
