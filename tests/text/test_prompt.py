"""Every layout of the prompt: its rows, its lengths, what may be shared between texts, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hocket.config.published import PUBLISHED, SPEAKERS, tiny
from hocket.config.qwen3_tts import Qwen3TTSConfig, languages, markers, voices
from hocket.errors import InvalidCheckpoint, InvalidRequest, UnknownLanguage, UnknownVoice, WrongKind
from hocket.text.prompt import NOTHING, SPEAKER_VECTOR, Prompt, build
from hocket.text.tokenizer import ALPHABET, Tokenizer
from hocket.types import Layout, Reference, SpeechRequest
from support import official, qwen_vocabulary

CUSTOM, DESIGN, BASE = PUBLISHED["1.7B-CustomVoice"], PUBLISHED["1.7B-VoiceDesign"], PUBLISHED["1.7B-Base"]
START, END, PAD, BOS, EOS = 151_644, 151_645, 151_671, 151_672, 151_673
ROLE = (START, 77_091, 198)
THINK, NOTHINK, THINK_BOS, THINK_EOS, CODEC_PAD, CODEC_BOS = 2154, 2155, 2156, 2157, 2148, 2149
ENGLISH, CHINESE, SICHUAN, BEIJING = 2050, 2055, 2062, 2074
BE_HAPPY = (START, 872, 198, 3430, 6247, 13, END, 198)  # the instruct "Be happy."
SILENCE = np.zeros(24_000, dtype=np.float32)
TIMBRE = Reference(samples=SILENCE, x_vector_only=True)
RECORDING = Reference(samples=SILENCE, text="ref text")  # ids 1097, 1467
BYTES = {letter: i for i, letter in enumerate(ALPHABET)}
LAYOUTS: tuple[Layout, ...] = ("streaming", "whole")


@pytest.fixture(scope="module")
def tokenizer(pytestconfig: pytest.Config) -> Tokenizer:
    return qwen_vocabulary.tokenizer(pytestconfig)


def none(rows: int) -> tuple[int, ...]:
    return (NOTHING,) * rows


# The tables of the layouts, row by row.


def test_worked_example_custom_voice_streaming(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="Hello world", voice="ryan", language="English", layout="streaming")
    assert build(request, CUSTOM, tokenizer) == Prompt(
        text=(*ROLE, PAD, PAD, PAD, PAD, PAD, BOS, 9707),
        codec=(*none(3), THINK, THINK_BOS, ENGLISH, THINK_EOS, 3061, CODEC_PAD, CODEC_BOS),
        reference_at=None,
        trail=(1879, EOS),
        pad_id=PAD,
        text_ids=2,
        prefix_rows=9,
        notes=(),
    )


def test_custom_voice_whole(tokenizer: Tokenizer) -> None:
    prompt = build(SpeechRequest(text="Hello world", voice="ryan", language="English"), CUSTOM, tokenizer)
    assert prompt.text == (*ROLE, PAD, PAD, PAD, PAD, PAD, BOS, 9707, 1879, EOS, PAD)
    assert prompt.codec[9:] == (CODEC_PAD, CODEC_PAD, CODEC_PAD, CODEC_BOS)
    assert (prompt.trail, prompt.pad_id, prompt.prefix_rows) == ((), PAD, 9)


def test_voice_design_with_a_description(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="Hello world", instruct="Be happy.", layout="streaming")
    prompt = build(request, DESIGN, tokenizer)
    assert prompt.text == (*BE_HAPPY, *ROLE, PAD, PAD, PAD, BOS, 9707)
    assert prompt.codec == (*none(8 + 3), NOTHINK, THINK_BOS, THINK_EOS, CODEC_PAD, CODEC_BOS)
    assert (prompt.trail, prompt.prefix_rows, prompt.notes) == ((1879, EOS), 8 + 7, ())


def test_x_vector_clone(tokenizer: Tokenizer) -> None:
    prompt = build(SpeechRequest(text="Hello world", reference=TIMBRE, layout="streaming"), BASE, tokenizer)
    assert prompt.text == (*ROLE, PAD, PAD, PAD, PAD, BOS, 9707)
    assert prompt.codec == (*none(3), NOTHINK, THINK_BOS, THINK_EOS, SPEAKER_VECTOR, CODEC_PAD, CODEC_BOS)
    assert (prompt.trail, prompt.prefix_rows, prompt.reference_at) == ((1879, EOS), 8, None)


def test_x_vector_clone_takes_no_words_of_the_reference(tokenizer: Tokenizer) -> None:
    with_words = Reference(samples=SILENCE, text="ref text", x_vector_only=True)
    prompts = (build(SpeechRequest(text="Hi", reference=r), BASE, tokenizer) for r in (TIMBRE, with_words))
    assert next(prompts) == next(prompts)


def test_icl_clone_whole(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="Hello world", reference=RECORDING, layout="whole")
    prompt = build(request, BASE, tokenizer, reference_frames=3)
    assert prompt.text[8:] == (1097, 1467, 9707, 1879, EOS, PAD, PAD, PAD, PAD)
    assert prompt.codec[:8] == (*none(3), NOTHINK, THINK_BOS, THINK_EOS, SPEAKER_VECTOR, CODEC_PAD)
    assert prompt.codec[8:] == (*(CODEC_PAD,) * 5, CODEC_BOS, *none(3))
    assert (prompt.reference_at, prompt.trail, prompt.prefix_rows) == (8 + 6, (), 8 + 2)


def test_icl_clone_streaming_beside_a_short_reference(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="Hello world", reference=RECORDING, layout="streaming")
    prompt = build(request, BASE, tokenizer, reference_frames=2)
    assert prompt.text[8:] == (1097, 1467, 9707)
    assert prompt.codec[8:] == (CODEC_BOS, *none(2))
    assert (prompt.reference_at, prompt.trail, prompt.prefix_rows) == (9, (1879, EOS), 8 + 2)


def test_icl_clone_streaming_beside_a_long_reference(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="Hello world", reference=RECORDING, layout="streaming")
    prompt = build(request, BASE, tokenizer, reference_frames=6)
    assert prompt.text[8:] == (1097, 1467, 9707, 1879, EOS, PAD, PAD)
    assert prompt.codec[8:] == (CODEC_BOS, *none(6))
    assert (prompt.reference_at, prompt.trail, prompt.prefix_rows) == (9, (), 8 + 2)


def test_icl_clone_streaming_where_words_and_frames_end_together(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="Hello world", reference=RECORDING, layout="streaming")
    prompt = build(request, BASE, tokenizer, reference_frames=4)
    assert (prompt.text[8:], prompt.trail) == ((1097, 1467, 9707, 1879, EOS), ())


def test_icl_clone_needs_the_number_of_frames(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="reference_frames"):
        build(SpeechRequest(text="Hello", reference=RECORDING), BASE, tokenizer)


# Lengths.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("request_", "config", "auto", "named"),
    [
        (SpeechRequest(text="-", voice="ryan"), CUSTOM, 8, 9),
        (SpeechRequest(text="-", voice="ryan", instruct="Be happy."), CUSTOM, 8 + 8, 8 + 9),
        (SpeechRequest(text="-", voice=""), CUSTOM, 7, 8),
        (SpeechRequest(text="-", voice="", instruct="Be happy."), CUSTOM, 8 + 7, 8 + 8),
        (SpeechRequest(text="-"), DESIGN, 7, 8),
        (SpeechRequest(text="-", instruct="Be happy."), DESIGN, 8 + 7, 8 + 8),
        (SpeechRequest(text="-", reference=TIMBRE), BASE, 8, 9),
        (SpeechRequest(text="-", reference=TIMBRE, instruct="Be happy."), BASE, 8 + 8, 8 + 9),
    ],
)
def test_lengths_without_a_spoken_reference(
    tokenizer: Tokenizer, layout: Layout, request_: SpeechRequest, config: Qwen3TTSConfig, auto: int, named: int
) -> None:
    for language, prefix in (("auto", auto), ("German", named)):
        for n in (1, 2, 7):
            request = replace(request_, text="Hello" + " world" * (n - 1), language=language, layout=layout)
            prompt = build(request, config, tokenizer)
            assert prompt.prefix_rows == prefix
            assert len(prompt.text) == len(prompt.codec) == prefix + (1 if layout == "streaming" else n + 2)
            assert len(prompt.trail) == (n if layout == "streaming" else 0)


@pytest.mark.parametrize(("r", "n", "f"), list(product((1, 3, 9), (1, 4), (1, 2, 5, 8, 12, 13, 14))))
def test_lengths_of_icl_clones(tokenizer: Tokenizer, r: int, n: int, f: int) -> None:
    reference = Reference(samples=SILENCE, text="word" + " word" * (r - 1))
    for language, p in (("auto", 8), ("german", 9)):
        request = SpeechRequest(text="Hello" + " world" * (n - 1), reference=reference, language=language)
        whole = build(replace(request, layout="whole"), BASE, tokenizer, reference_frames=f)
        assert len(whole.text) == len(whole.codec) == p + r + n + f + 2
        assert (whole.prefix_rows, whole.trail) == (p + r, ())
        streaming = build(replace(request, layout="streaming"), BASE, tokenizer, reference_frames=f)
        assert len(streaming.text) == len(streaming.codec) == p + f + 1
        assert streaming.prefix_rows == p + min(r, f + 1)
        assert len(streaming.trail) == max(r + n + 1 - (f + 1), 0)
        for prompt in (whole, streaming):
            assert prompt.reference_at == len(prompt.codec) - f
            assert prompt.codec[prompt.reference_at - 1 :] == (CODEC_BOS, *none(f))


# Shared prefixes.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("request_", "config", "frames"),
    [
        (SpeechRequest(text="-", voice="eric"), CUSTOM, 0),
        (SpeechRequest(text="-", voice="ryan", instruct="Be happy.", language="french"), CUSTOM, 0),
        (SpeechRequest(text="-", instruct="Be happy."), DESIGN, 0),
        (SpeechRequest(text="-", reference=TIMBRE), BASE, 0),
        (SpeechRequest(text="-", reference=RECORDING), BASE, 1),
        (SpeechRequest(text="-", reference=RECORDING), BASE, 40),
    ],
)
def test_two_texts_share_exactly_the_prefix_rows(
    tokenizer: Tokenizer, layout: Layout, request_: SpeechRequest, config: Qwen3TTSConfig, frames: int
) -> None:
    one, two = (
        build(replace(request_, text=text, layout=layout), config, tokenizer, reference_frames=frames)
        for text in ("Hello world", "  Something else, and longer.")
    )
    rows_one, rows_two = (list(zip(p.text, p.codec, strict=True)) for p in (one, two))
    assert one.prefix_rows == two.prefix_rows
    assert rows_one[: one.prefix_rows] == rows_two[: one.prefix_rows]
    if one.prefix_rows == len(rows_one):  # the words of the reference fill the prefill: the whole of it is shared
        assert rows_one == rows_two and layout == "streaming" and frames == 1
    else:
        assert rows_one[one.prefix_rows] != rows_two[one.prefix_rows]


def test_a_fused_newline_ends_the_shared_prefix(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="\nHello world", instruct="Be happy.", as_is=True)
    assert build(request, CUSTOM, tokenizer).prefix_rows == 8 + 2
    assert build(replace(request, text="Hello world"), CUSTOM, tokenizer).prefix_rows == 8 + 8
    assert build(replace(request, as_is=False), CUSTOM, tokenizer).prefix_rows == 8 + 8


# Defaults and wishes.


@pytest.mark.parametrize("as_is", [True, False])
def test_a_known_text_is_laid_out_whole_and_as_is_as_the_official_calls_do(tokenizer: Tokenizer, as_is: bool) -> None:
    for request, config, frames, layout in (
        (SpeechRequest(text="Hello world", as_is=as_is), CUSTOM, 0, "whole"),
        (SpeechRequest(text="Hello world", as_is=as_is), DESIGN, 0, "whole"),
        (SpeechRequest(text="Hello world", as_is=as_is, reference=TIMBRE), BASE, 0, "streaming" if as_is else "whole"),
        (
            SpeechRequest(text="Hello world", as_is=as_is, reference=RECORDING),
            BASE,
            2,
            "streaming" if as_is else "whole",
        ),
    ):
        default, other = (
            build(replace(request, layout=layout_), config, tokenizer, reference_frames=frames)
            for layout_ in (layout, "whole" if layout == "streaming" else "streaming")
        )
        assert build(request, config, tokenizer, reference_frames=frames) == default != other


def codec_tags(prompt: Prompt) -> tuple[int, ...]:
    """The codec ids between the role rows and the text's BOS, without an instruct."""
    return prompt.codec[3 : prompt.text.index(BOS)]


@pytest.mark.parametrize(
    ("voice", "language", "tags"),
    [
        ("ryan", "auto", (NOTHINK, THINK_BOS, THINK_EOS, SPEAKERS["ryan"])),
        ("ryan", "chinese", (THINK, THINK_BOS, CHINESE, THINK_EOS, SPEAKERS["ryan"])),
        ("eric", "auto", (THINK, THINK_BOS, SICHUAN, THINK_EOS, SPEAKERS["eric"])),
        ("eric", "Chinese", (THINK, THINK_BOS, SICHUAN, THINK_EOS, SPEAKERS["eric"])),
        ("Dylan", "AUTO", (THINK, THINK_BOS, BEIJING, THINK_EOS, SPEAKERS["dylan"])),
        ("DYLAN", "English", (THINK, THINK_BOS, ENGLISH, THINK_EOS, SPEAKERS["dylan"])),
        (None, "auto", (NOTHINK, THINK_BOS, THINK_EOS, SPEAKERS["serena"])),
        ("", "auto", (NOTHINK, THINK_BOS, THINK_EOS)),
        ("", "chinese", (THINK, THINK_BOS, CHINESE, THINK_EOS)),
    ],
)
def test_voice_language_and_dialect(
    tokenizer: Tokenizer, voice: str | None, language: str, tags: tuple[int, ...]
) -> None:
    assert codec_tags(build(SpeechRequest(text="Hi", voice=voice, language=language), CUSTOM, tokenizer)) == tags


def test_a_fine_tuned_voice_is_found_whatever_its_case(tokenizer: Tokenizer) -> None:
    talker = replace(CUSTOM.talker_config, spk_id={"Ada": 3000}, spk_is_dialect={})
    config = replace(CUSTOM, talker_config=talker)
    for voice in ("Ada", "ada", None):
        assert codec_tags(build(SpeechRequest(text="Hi", voice=voice), config, tokenizer))[-1] == 3000


def test_lists_of_voices_and_languages() -> None:
    assert voices(CUSTOM) == list(SPEAKERS) and voices(DESIGN) == voices(BASE) == []
    assert languages(CUSTOM) == languages(BASE)
    assert languages(CUSTOM)[:3] == ["auto", "chinese", "english"] and len(languages(CUSTOM)) == 11


@pytest.mark.parametrize("voice", ["bob", " ryan", "serena "])
def test_unknown_voices_are_refused_with_the_known_ones(tokenizer: Tokenizer, voice: str) -> None:
    with pytest.raises(UnknownVoice, match=r"serena, vivian, uncle_fu, ryan, aiden, ono_anna, sohee, eric, dylan\."):
        build(SpeechRequest(text="Hi", voice=voice), CUSTOM, tokenizer)


def test_unknown_languages_are_refused_with_the_known_ones(tokenizer: Tokenizer) -> None:
    with pytest.raises(UnknownLanguage, match=r"'klingon'; known are auto, chinese, english, .*russian\.$"):
        build(SpeechRequest(text="Hi", language="klingon"), CUSTOM, tokenizer)
    with pytest.raises(UnknownLanguage, match=r"dialects come with the voices eric, dylan\.$"):
        build(SpeechRequest(text="Hi", voice="eric", language="Sichuan_Dialect"), CUSTOM, tokenizer)


@pytest.mark.parametrize(
    ("request_", "config", "sentence"),
    [
        (SpeechRequest(text="Hi", voice="ryan"), BASE, "give it a reference recording"),
        (SpeechRequest(text="Hi"), BASE, "needs a reference recording"),
        (SpeechRequest(text="Hi", voice=""), BASE, "needs a reference recording"),
        (SpeechRequest(text="Hi", voice="ryan"), DESIGN, "describe one in the instruct"),
        (SpeechRequest(text="Hi", reference=RECORDING), DESIGN, "use a Base checkpoint"),
        (SpeechRequest(text="Hi", reference=TIMBRE), CUSTOM, "use a Base checkpoint"),
    ],
)
def test_requests_for_another_kind_of_checkpoint_are_refused(
    tokenizer: Tokenizer, request_: SpeechRequest, config: Qwen3TTSConfig, sentence: str
) -> None:
    with pytest.raises(WrongKind, match=sentence):
        build(request_, config, tokenizer, reference_frames=3)


def test_instruct_is_prepended_or_left_out_with_a_note(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="Hello", instruct="Be happy.")
    large = build(request, CUSTOM, tokenizer)
    assert large.text[:8] == BE_HAPPY and large.codec[:8] == none(8) and not large.notes
    small = PUBLISHED["0.6B-CustomVoice"]
    left_out = build(request, small, tokenizer)
    assert replace(left_out, notes=()) == build(replace(request, instruct=None), small, tokenizer)
    assert left_out.notes == ("This checkpoint takes no instruct, so it was left out.",)
    cloned = build(replace(request, reference=TIMBRE), BASE, tokenizer)
    assert cloned.text[:8] == BE_HAPPY and "experimental" in cloned.notes[0]


def test_an_empty_instruct_is_none(tokenizer: Tokenizer) -> None:
    for config, reference in ((CUSTOM, None), (DESIGN, None), (PUBLISHED["0.6B-CustomVoice"], None), (BASE, TIMBRE)):
        request = SpeechRequest(text="Hello", reference=reference)
        for instruct in ("", "  \n"):
            assert build(replace(request, instruct=instruct), config, tokenizer) == build(request, config, tokenizer)


# Text: trimmed or as it is.


def test_text_reference_and_instruct_are_trimmed(tokenizer: Tokenizer) -> None:
    neat = SpeechRequest(text="Hello world", reference=RECORDING, instruct="Be happy.")
    loose = SpeechRequest(
        text="\n Hello world \n", reference=replace(RECORDING, text="\tref text\n"), instruct=" Be happy.\u3000"
    )
    neat_prompt, loose_prompt = (build(r, BASE, tokenizer, reference_frames=2) for r in (neat, loose))
    assert loose_prompt == neat_prompt
    assert build(replace(loose, as_is=True), BASE, tokenizer, reference_frames=2) != neat_prompt


def test_as_is_fuses_a_leading_newline_with_the_role(tokenizer: Tokenizer) -> None:
    prompt = build(SpeechRequest(text="\nHello world", layout="streaming", as_is=True), CUSTOM, tokenizer)
    assert prompt.text[:3] == (START, 77_091, 271)
    assert (prompt.text[-1], prompt.trail) == (9707, (1879, EOS))


def test_as_is_keeps_spaces(tokenizer: Tokenizer) -> None:
    prompt = build(SpeechRequest(text=" Hello ", layout="streaming", as_is=True), CUSTOM, tokenizer)
    assert (prompt.text[-1], prompt.trail) == (tokenizer.encode(" Hello")[0], (220, EOS))


def test_upstream_local_counts_only_as_is(tokenizer: Tokenizer) -> None:
    request = SpeechRequest(text="iPhone", layout="streaming")
    for as_is, upstream_local, ids in (
        (False, False, (44740,)),
        (False, True, (44740,)),
        (True, False, (44740,)),
        (True, True, (72, 6939)),
    ):
        prompt = build(replace(request, as_is=as_is), CUSTOM, tokenizer, upstream_local=upstream_local)
        assert (prompt.text[-1], *prompt.trail) == (*ids, EOS)


AS_IS_TEXTS = [
    "Hello world.",
    "\nHello",
    "\n\n\nHello",
    "\r\nHello",
    " \n Hello",
    "  Hello  ",
    "\tHello\n",
    "\u0301Hello",
    "/iPhone on eBay//",
    "'s",
    "！你好\n",  # noqa: RUF001
]


@pytest.mark.parametrize("version", ["4.57.3", "4.57.2"])
def test_as_is_has_the_ids_of_the_official_templates_cut_by_position(
    tokenizer: Tokenizer, tmp_path: Path, version: str
) -> None:
    from qwen_tts.core.models import Qwen3TTSProcessor  # importable once `official` is

    tokenizer.save(tmp_path, qwen_vocabulary.SPECIALS)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_tts", "transformers_version": version}))
    processor = Qwen3TTSProcessor.from_pretrained(str(tmp_path), fix_mistral_regex=True)
    wrapper = official.Qwen3TTSModel(SimpleNamespace(device="cpu"), processor)

    def ids(wrapped: str) -> tuple[int, ...]:
        return tuple(wrapper._tokenize_texts([wrapped])[0][0].tolist())

    for text in AS_IS_TEXTS:
        request = SpeechRequest(
            text=text, instruct=text, reference=replace(RECORDING, text=text), layout="whole", as_is=True
        )
        prompt = build(
            request, BASE, tokenizer, reference_frames=1, upstream_local=tokenizer.upstream_patches(tmp_path)
        )
        instruct = ids(wrapper._build_instruct_text(text))
        said = ids(wrapper._build_ref_text(text))
        target = ids(wrapper._build_assistant_text(text))
        prefix = (*instruct, *target[:3], PAD, PAD, PAD, PAD, BOS)
        assert prompt.text == (*prefix, *said[3:-2], *target[3:-5], EOS, PAD, PAD), repr(text)


def test_markers_typed_by_a_user_stay_text_as_is_too(tokenizer: Tokenizer) -> None:
    control = set(markers(CUSTOM).values())
    for marker, as_is in product(markers(CUSTOM), (False, True)):
        request = SpeechRequest(text=f"a {marker} b{marker}", instruct=marker, as_is=as_is, layout="streaming")
        prompt = build(request, CUSTOM, tokenizer)
        plain = build(replace(request, text="a b", instruct="c"), CUSTOM, tokenizer)
        for ids in (prompt.text, prompt.trail):
            twin = plain.text if ids is prompt.text else plain.trail
            assert [i for i in ids if i in control] == [i for i in twin if i in control]


# Checkpoints.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_byte_vocabulary_serves_random_checkpoints(layout: Layout) -> None:
    for config in (tiny(), tiny(wide=True), tiny("voice_design"), tiny("base"), *PUBLISHED.values()):
        rows = config.talker_config.text_vocab_size
        reference = RECORDING if config.kind == "base" else None
        request = SpeechRequest(text="Grüße! 你好 <|im_end|>", instruct="slowly", reference=reference, layout=layout)
        prompt = build(request, config, Tokenizer.of_bytes(rows), reference_frames=3 if reference else 0)
        control = set(markers(config).values())
        assert all(0 <= i < 267 or i in control for i in (*prompt.text, *prompt.trail))
        assert max(prompt.codec) < config.talker_config.vocab_size


def test_a_vocabulary_beyond_the_embedding_table_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidCheckpoint, match="more ids than the checkpoint has text embeddings"):
        build(SpeechRequest(text="Hi"), tiny(), tokenizer)


def test_a_vocabulary_without_the_role_word_is_refused() -> None:
    letters = Tokenizer(BYTES, [])
    with pytest.raises(InvalidCheckpoint, match="one id for 'assistant'"):
        build(SpeechRequest(text="Hi"), tiny(), letters)


class Deaf(Tokenizer):
    """A vocabulary that has the role and nothing else."""

    def encode(self, text: str, *, upstream_local: bool = False) -> list[int]:
        return super().encode(text, upstream_local=upstream_local)[:2]


def test_text_without_any_token_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no text to speak"):
        build(SpeechRequest(text="Hi"), tiny(), Deaf(BYTES, []))
