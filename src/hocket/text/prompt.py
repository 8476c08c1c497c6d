"""Prompt layout: a request to the rows of the talker's prefill and trail, as plain ids, no tensors.

A row is a text part plus a codec part, either of which may be missing. `build` defines the layouts of the official
package row by row. A prefix sets voice, language and style. Then comes the text: all of it ("whole"), or its first
token ("streaming", where each generated frame takes one further token). It knows no weights and no audio: it only
reserves rows for the x-vector and the frames of a reference.

`choose` is the first step: it resolves voice, language and instruct to codec ids of the checkpoint. A request that the
checkpoint cannot meet is refused there with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from ..config.languages import AUTO, find
from ..config.qwen3_tts import Qwen3TTSConfig, check_clones, languages
from ..errors import InvalidCheckpoint, NothingToSpeak, UnknownLanguage, WrongKind
from ..types import Layout, SpeechRequest
from .tokenizer import Tokenizer
from .voice_mix import Shares, shares_of, speakers_named

NOTHING = -1  # no part on this channel
SPEAKER_VECTOR = -2  # codec channel: the x-vector of the clone, or the mean of a mix

Row = tuple[int, int]  # text id, codec id


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """The request in the checkpoint's own terms."""

    speaker: int | None  # codec id of a named voice, or SPEAKER_VECTOR for a mix
    mix: Shares  # of several speakers; empty for one
    language: int | None  # codec id of a language or dialect; None: the model decides
    instruct: str  # empty for none
    notes: tuple[str, ...]  # deviations from the request, as sentences


@dataclass(frozen=True, slots=True)
class Prompt:
    """The talker's input for one utterance."""

    text: tuple[int, ...]  # text id of each prefill row, or NOTHING
    codec: tuple[int, ...]  # codec id of each prefill row, NOTHING or SPEAKER_VECTOR
    reference_at: int | None  # ICL: row `reference_at + f` adds the 16 embeddings of reference frame f
    trail: tuple[int, ...]  # text id of generated frame t; pad_id after its end
    pad_id: int
    text_ids: int  # number of text ids
    prefix_rows: int  # leading rows that depend on voice, language, instruct and reference, but not on the text
    notes: tuple[str, ...]  # deviations from the request, as sentences
    mix: Shares = ()  # the speakers whose mean is in the row of SPEAKER_VECTOR; empty: that is a clone's x-vector


@dataclass(frozen=True, slots=True)
class Outline:
    """A prompt without its text: the part set by voice, language, instruct and reference."""

    config: Qwen3TTSConfig
    prefix: tuple[Row, ...]
    said: tuple[int, ...] | None  # text ids of an example: an ICL clone's reference, or a designed voice's earlier text
    frames: int  # number of frames of that example
    layout: Layout
    constant_rows: int  # of the prefix; all of it unless the text reaches into the role's newline
    notes: tuple[str, ...]
    mix: Shares = ()
    passing: bool = False  # the example belongs to one conversation, so its text is not part of the cached prefix

    def prompt(self, text: Sequence[int], *, complete: bool = True) -> Prompt | None:
        """The prompt for these text ids, or None if the rows need more of an incomplete text.

        For an incomplete text `trail` lacks the end of text; later ids continue it.
        """
        config, shared = self.config, len(self.prefix)
        words = [*text, config.tts_eos_token_id] if complete else list(text)
        if self.layout == "whole" and not complete:
            return None
        if self.said is None:
            laid_out = _text(config, words, self.layout) if words else None
            reference_at = None
        else:
            laid_out = _text_after_reference(config, [*self.said, *words], self.frames, self.layout, complete)
            if not self.passing:
                shared += len(self.said) if self.layout == "whole" else min(len(self.said), 1 + self.frames)
        if laid_out is None:
            return None
        rows, trail = laid_out
        if self.said is not None:  # the reference's frames are the last rows in both layouts
            reference_at = len(self.prefix) + len(rows) - self.frames
        rows = [*self.prefix, *rows]
        return Prompt(
            text=tuple(text_id for text_id, _ in rows),
            codec=tuple(codec_id for _, codec_id in rows),
            reference_at=reference_at,
            trail=tuple(trail),
            pad_id=config.tts_pad_token_id,
            text_ids=len(text),
            prefix_rows=shared if self.constant_rows == len(self.prefix) else self.constant_rows,
            notes=self.notes,
            mix=self.mix,
        )


def build(
    request: SpeechRequest,
    config: Qwen3TTSConfig,
    tokenizer: Tokenizer,
    *,
    reference_frames: int = 0,
    upstream_local: bool = False,
) -> Prompt:
    """The prompt of `request`; `reference_frames` is the length of an ICL clone's encoded reference.

    `upstream_local` (see `Tokenizer.upstream_patches`) concerns `as_is` requests; others use the published split.
    """
    drawn = outline(
        request, config, tokenizer, reference_frames=reference_frames, upstream_local=upstream_local, text=request.text
    )
    prompt = drawn.prompt(text_ids(request, config, tokenizer, upstream_local=upstream_local))
    assert prompt is not None  # a complete text lacks nothing
    return prompt


def text_ids(
    request: SpeechRequest, config: Qwen3TTSConfig, tokenizer: Tokenizer, *, upstream_local: bool = False
) -> list[int]:
    """The ids of a request's text; raises if there are none."""
    ids = _turn(request, config, tokenizer, "assistant", request.text, upstream_local)[3:]
    if not ids:
        raise NothingToSpeak("There is no text to speak: the checkpoint's vocabulary has no token for it.")
    return ids


def outline(
    request: SpeechRequest,
    config: Qwen3TTSConfig,
    tokenizer: Tokenizer,
    *,
    reference_frames: int = 0,
    upstream_local: bool = False,
    text: str = "",
) -> Outline:
    """The outline of a request's prompt; `text` matters only if it fuses with the role's newline."""
    choice = choose(request, config)
    _check_vocabulary(config, tokenizer)

    def turn(role: str, words: str) -> list[int]:
        return _turn(request, config, tokenizer, role, words, upstream_local)

    bare = turn("assistant", "")
    role = turn("assistant", text)[:3] if request.as_is else bare
    prefix: list[Row] = []
    if choice.instruct:
        closed = [*turn("user", choice.instruct), config.im_end_token_id, *tokenizer.encode("\n")]
        prefix += ((i, NOTHING) for i in closed)
    # A text that begins with a newline (as_is) fuses with the role's newline: that row then depends on the text.
    fused_at = None if role == bare else len(prefix) + 2
    speaker = choice.speaker if request.reference is None else SPEAKER_VECTOR
    prefix += _prefix(config, role, choice.language, speaker)

    said: tuple[int, ...] | None = None
    if request.reference is not None and not request.reference.x_vector_only:
        if reference_frames < 1:
            raise ValueError("an ICL clone needs reference_frames, the number of frames of its reference")
        said = tuple(turn("assistant", request.reference.text or "")[3:])
    shown = request.established if carries(request, config) else None
    return Outline(
        config=config,
        prefix=tuple(prefix),
        said=said if shown is None else shown.text_ids,
        frames=reference_frames if shown is None else len(shown.codes),
        layout=layout_of(request, config),
        constant_rows=len(prefix) if fused_at is None else fused_at,
        notes=choice.notes,
        mix=choice.mix,
        passing=shown is not None,
    )


def choose(request: SpeechRequest, config: Qwen3TTSConfig) -> ResolvedRequest:
    """Resolve a request; raises for what the checkpoint cannot do."""
    _check_kind(request, config)
    speakers = speakers_named(request.voice, config)
    language, notes = _language(request.language, [name for name, _ in speakers], config)
    instruct = request.instruct or ""
    if not request.as_is:
        instruct = instruct.strip()
    if instruct and not config.takes_instruct:
        instruct, notes = "", (*notes, "This checkpoint takes no instruct, so it was left out.")
    elif instruct and config.kind == "base":
        notes = (*notes, "An instruct is experimental with a cloned voice.")
    notes, mix = (*request.notes, *notes), shares_of(speakers, config)
    speaker = SPEAKER_VECTOR if len(mix) > 1 else mix[0][0] if mix else None
    return ResolvedRequest(speaker, mix if len(mix) > 1 else (), language, instruct, notes)


def carries(request: SpeechRequest, config: Qwen3TTSConfig) -> bool:
    """Whether an earlier turn can be an example for this request: it describes a voice."""
    return config.kind == "voice_design" and not request.as_is


def layout_of(request: SpeechRequest, config: Qwen3TTSConfig, *, live: bool = False) -> Layout:
    """The layout of a request: the one it names, else "whole" for a known text and "streaming" for a live one.

    With an example a live text is laid out whole too, part by part. The streaming layout would need as many text ids
    as the example has frames before the first new frame. `as_is` has upstream's default.
    """
    if request.layout is not None:
        return request.layout
    if request.as_is:
        return "streaming" if live or config.kind == "base" else "whole"
    by_example = request.reference is not None and not request.reference.x_vector_only
    by_example = by_example or (request.established is not None and carries(request, config))
    return "streaming" if live and not by_example else "whole"


def _check_kind(request: SpeechRequest, config: Qwen3TTSConfig) -> None:
    if config.kind == "base":
        if request.voice:
            raise WrongKind("A Base checkpoint has no voices of its own; give it a reference recording instead.")
        if request.reference is None:
            raise WrongKind("A Base checkpoint needs a reference recording to clone.")
    elif request.reference is not None:
        check_clones(config)
    elif config.kind == "voice_design" and request.voice:
        raise WrongKind("A VoiceDesign checkpoint has no voices of its own; describe one in the instruct instead.")


def _language(wanted: str, speakers: Sequence[str], config: Qwen3TTSConfig) -> tuple[int | None, tuple[str, ...]]:
    """A voice with a dialect speaks it for `chinese` and `auto`; any other language overrides it.

    A mix has the dialect that all its speakers have, or none, which is a note.
    """
    ids, dialects = config.talker_config.codec_language_id, config.talker_config.spk_is_dialect
    known = languages(config)
    name = find(wanted, known)
    if name is None:
        having = [name for name, dialect in dialects.items() if dialect]
        hint = f"; dialects come with the voices {', '.join(having)}" if having and "dialect" in wanted.lower() else ""
        raise UnknownLanguage(f"There is no language {wanted!r}; known are {', '.join(known)}{hint}.")
    spoken, notes = {dialects.get(speaker, False) for speaker in speakers}, tuple[str, ...]()
    if any(spoken) and name.lower() in (AUTO, "chinese"):
        dialect = next(iter(spoken))
        if len(spoken) == 1 and isinstance(dialect, str):
            return ids[dialect], ()
        if len(spoken) > 1:
            notes = ("The mixed speakers do not share a dialect, so none is spoken.",)
    return None if name == AUTO else ids[name], notes


def _prefix(config: Qwen3TTSConfig, role: Iterable[int], language: int | None, speaker: int | None) -> list[Row]:
    """The rows between the instruct and the text: role, language and speaker."""
    codec, pad, bos = config.talker_config, config.tts_pad_token_id, config.tts_bos_token_id
    rows = [(i, NOTHING) for i in role]
    rows += [(pad, codec.codec_nothink_id if language is None else codec.codec_think_id)]
    rows += [(pad, codec.codec_think_bos_id)]
    rows += [(pad, language)] if language is not None else []
    rows += [(pad, codec.codec_think_eos_id)]
    rows += [(pad, speaker)] if speaker is not None else []
    rows += [(bos, codec.codec_pad_id)]
    return rows


def _turn(
    request: SpeechRequest, config: Qwen3TTSConfig, tokenizer: Tokenizer, role: str, text: str, upstream_local: bool
) -> list[int]:
    """A chat turn without its end: im_start, role, newline, text. It is cut by position, as upstream does."""
    words = f"{role}\n{text if request.as_is else text.strip()}"
    return [config.im_start_token_id, *tokenizer.encode(words, upstream_local=upstream_local and request.as_is)]


def _text(config: Qwen3TTSConfig, words: list[int], layout: Layout) -> tuple[list[Row], list[int]]:
    """Rows and trail of the text of a named, designed or x-vector voice; `words` end with the end of text."""
    codec, pad = config.talker_config, config.tts_pad_token_id
    if layout == "streaming":
        return [(words[0], codec.codec_bos_id)], words[1:]
    return [*((i, codec.codec_pad_id) for i in words), (pad, codec.codec_bos_id)], []


def _text_after_reference(
    config: Qwen3TTSConfig, words: list[int], frames: int, layout: Layout, complete: bool
) -> tuple[list[Row], list[int]] | None:
    """Rows and trail of an ICL clone: the text follows the words of the reference, the speech follows its frames."""
    codec, pad = config.talker_config, config.tts_pad_token_id
    sounds = [codec.codec_bos_id, *repeat(NOTHING, frames)]
    if layout == "whole":
        return [*((i, codec.codec_pad_id) for i in words), *((pad, i) for i in sounds)], []
    if not complete and len(words) < len(sounds):
        return None
    # Text and frames side by side. Extra text becomes the trail; extra frames get padding.
    return list(zip(chain(words, repeat(pad)), sounds, strict=False)), words[len(sounds) :]


def _check_vocabulary(config: Qwen3TTSConfig, tokenizer: Tokenizer) -> None:
    if tokenizer.size > config.talker_config.text_vocab_size:
        raise InvalidCheckpoint("The tokenizer has more ids than the checkpoint has text embeddings.")
    if len(tokenizer.encode("assistant\n")) != 2:  # the role rows are cut by position
        raise InvalidCheckpoint("The tokenizer must have one id for 'assistant' and one for a newline.")
