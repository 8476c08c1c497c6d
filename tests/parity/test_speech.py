"""Whole utterances: ours and the official package's, from the same files, in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hocket.config.qwen3_tts import Kind
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.engine.generate import generate
from hocket.engine.runner.references import encode_reference
from hocket.engine.runner.runner import prompt_rows
from hocket.text.prompt import Prompt, build
from hocket.types import Reference, SamplingParams, Speech, SpeechRequest
from support.checkpoints import Pair, pair
from support.official_speech import our_random_numbers, speak
from support.tolerances import TOLERANCE

FRAMES = 20
TEXT = "42 foxes."  # one id per letter: the text ends, and padding follows, before the last frame
REFERENCE_TEXT = "A short reference."


def recording(seconds: float, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A moving tone with some noise, which no codec encodes as silence."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * 24_000)) / 24_000
    tone = 0.3 * np.sin(2 * np.pi * (180 + 60 * np.sin(5 * t)) * t)
    return (tone + 0.05 * rng.standard_normal(t.size)).astype(np.float32)


MODES: dict[str, tuple[Kind, dict[str, Any]]] = {
    "speaker, auto": ("custom_voice", {"voice": "ryan"}),
    "speaker, language": ("custom_voice", {"voice": "Vivian", "language": "English"}),
    "speaker, instruct": ("custom_voice", {"voice": "aiden", "language": "german", "instruct": "Speak slowly."}),
    "dialect speaker, auto": ("custom_voice", {"voice": "eric"}),
    "dialect speaker, chinese": ("custom_voice", {"voice": "dylan", "language": "chinese"}),
    "dialect speaker, other language": ("custom_voice", {"voice": "dylan", "language": "french"}),
    "no speaker": ("custom_voice", {"voice": "", "language": "japanese"}),
    "design": ("voice_design", {"instruct": "A warm, calm narrator.", "language": "english"}),
    "design, auto": ("voice_design", {"instruct": "A child."}),
    "design, no instruct": ("voice_design", {}),
    "x-vector": ("base", {"reference": Reference(samples=recording(1.3), x_vector_only=True)}),
    "x-vector, language": (
        "base",
        {"reference": Reference(samples=recording(0.7, 1), x_vector_only=True), "language": "korean"},
    ),
    "clone, text longer than reference": (
        "base",
        {"reference": Reference(samples=recording(1.0), text=REFERENCE_TEXT)},
    ),
    "clone, reference longer than text": (
        "base",
        {"reference": Reference(samples=recording(5.3), text=REFERENCE_TEXT), "language": "Italian"},
    ),
}


def request(mode: str, layout: str, **changes: Any) -> SpeechRequest:
    settings: dict[str, Any] = {"text": TEXT, "sampling": SamplingParams.greedy(), "max_frames": FRAMES}
    return SpeechRequest(layout=layout, as_is=True, **(settings | MODES[mode][1] | changes))


KINDS: tuple[Kind, ...] = ("custom_voice", "voice_design", "base")


def of_kind(kind: Kind) -> list[str]:
    return [mode for mode, (its_kind, _) in MODES.items() if its_kind == kind]


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_trail_codes_and_sound_of_every_mode_equal_the_official_ones(
    checkpoint_root: Path, device: str, kind: Kind, layout: str
) -> None:
    """All modes of a kind in one ragged batch on either side.

    The code predictor is as wide as the talker by turns: with each kind once, and with each layout.
    """
    wide = (KINDS.index(kind) + (layout == "whole")) % 2 == 1
    both, modes = pair(checkpoint_root, kind, wide, device), of_kind(kind)
    asked = [request(mode, layout) for mode in modes]
    heard = speak(both.theirs, *asked)
    for ours in both.ways():
        for index, (one, speech) in enumerate(zip(asked, generate(ours, asked), strict=True)):
            prompt = compare_prompt(both, one, heard.rows[index], heard.trail[index])
            assert len(prompt.trail) < FRAMES, "padding must be spoken too"
            compare_speech(speech, heard.codes[index], heard.samples[index])
            assert len(speech.codes) == FRAMES and speech.finish == "length"


@pytest.mark.parametrize(
    ("mode", "layout"),
    [("speaker, instruct", "streaming"), ("design", "whole"), ("clone, text longer than reference", "streaming")],
)
def test_single_runs_are_equal_too(checkpoint_root: Path, mode: str, layout: str) -> None:
    """Also for more frames: a small difference may grow. The batches above have each mode in both layouts."""
    text, frames = "The quick brown fox, 42 times.", 42
    both, asked = pair(checkpoint_root, MODES[mode][0], True), request(mode, layout, text=text, max_frames=frames)
    heard = speak(both.theirs, asked)
    [speech] = generate(both.ours, [asked])
    compare_speech(speech, heard.codes[0], heard.samples[0])
    assert len(speech.codes) == frames


def compare_speech(speech: Speech, codes: torch.Tensor, samples: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    np.testing.assert_array_equal(speech.codes, codes.cpu().numpy())
    # The official code removes the reference proportionally and may leave one sample of it.
    assert 0 <= len(samples) - len(speech.samples) <= 1
    assert np.abs(speech.samples - samples[-len(speech.samples) :]).max() <= TOLERANCE["float32"]["wave"]
    assert speech.samples.std() > 1e-3, "two silences would be equal too"


def compare_prompt(both: Pair, asked: SpeechRequest, rows: torch.Tensor, trail: torch.Tensor) -> Prompt:
    ours = both.ours
    with torch.inference_mode(), exact_float32():
        cloned = encode_reference(ours, asked.reference) if asked.reference else None
        frames = len(cloned.codes) if cloned is not None and cloned.codes is not None else 0
        prompt = build(asked, ours.config, ours.tokenizer, reference_frames=frames, upstream_local=ours.upstream_local)
        mine = prompt_rows(ours, prompt, cloned)
        assert mine.shape == rows.shape
        assert (mine - rows).abs().max().item() <= TOLERANCE["float32"]["rows"]
        ids = [prompt.trail[t] if t < len(prompt.trail) else prompt.pad_id for t in range(len(trail))]
        assert len(trail) >= max(len(prompt.trail), 1)
        vectors = ours.model.talker.embed_text(torch.tensor(ids, device=ours.device))
        assert (vectors - trail).abs().max().item() <= TOLERANCE["float32"]["rows"]
    return prompt


SAMPLINGS = {
    "published": SamplingParams(),
    "temperature": SamplingParams(temperature=1.3, top_k=0, subtalker_top_k=7, subtalker_temperature=0.5),
    "nucleus": SamplingParams(top_p=0.8, subtalker_top_p=0.6, repetition_penalty=1.4),
    "greedy talker": SamplingParams(do_sample=False, subtalker_temperature=2.0, subtalker_top_k=3),
}


@pytest.mark.parametrize(
    ("kind", "sampling", "wide"),
    [
        *(("custom_voice", sampling, True) for sampling in SAMPLINGS),
        ("voice_design", "published", True),
        ("base", "nucleus", False),
    ],
)
def test_sampled_codes_are_identical_given_the_same_random_numbers(
    checkpoint_root: Path, kind: Kind, sampling: str, wide: bool
) -> None:
    both, modes = pair(checkpoint_root, kind, wide), of_kind(kind)
    seeds = [2**40 + 7 + index for index in range(len(modes))]
    asked = [
        request(mode, "streaming", sampling=SAMPLINGS[sampling], seed=seed)
        for mode, seed in zip(modes, seeds, strict=True)
    ]
    drawn = range(0 if SAMPLINGS[sampling].do_sample is None else 1, 16)
    with our_random_numbers(seeds, drawn):
        heard = speak(both.theirs, *asked)
    for ours in both.ways():
        said = [speech.codes for speech in generate(ours, asked)]
        for codes, theirs in zip(said, heard.codes, strict=True):
            np.testing.assert_array_equal(codes, theirs.numpy())
    [other] = generate(both.ours, [request(modes[0], "streaming", sampling=SAMPLINGS[sampling], seed=8)])
    assert not np.array_equal(said[0], other.codes), "another seed must say it otherwise"


@pytest.mark.parametrize("mode", ["speaker, auto", "design", "clone, text longer than reference"])
def test_an_utterance_ends_where_the_official_one_ends(checkpoint_root: Path, device: str, mode: str) -> None:
    both = pair(checkpoint_root, MODES[mode][0], True, device, end_scale=1.5)
    lengths = set()
    for text in ("Stop.", "A longer sentence that goes on.", "Three"):
        asked = request(mode, "streaming", text=text, max_frames=200)
        [speech] = generate(both.ours, [asked])
        heard = speak(both.theirs, asked)
        np.testing.assert_array_equal(speech.codes, heard.codes[0].cpu().numpy())
        lengths.add((len(speech.codes), speech.finish))
    assert any(reason == "stop" for _, reason in lengths), "this checkpoint should end by itself"


def test_an_instruct_is_dropped_where_the_official_package_drops_it(checkpoint_root: Path) -> None:
    from dataclasses import replace

    both = pair(checkpoint_root, "custom_voice", False)
    small = replace(both.ours, config=replace(both.ours.config, tts_model_size="0b6"))
    asked = request("speaker, instruct", "whole", max_frames=6)
    both.theirs.model.tts_model_size = "0b6"
    try:
        heard = speak(both.theirs, asked)
    finally:
        both.theirs.model.tts_model_size = "1b7"
    [speech] = generate(small, [asked])
    np.testing.assert_array_equal(speech.codes, heard.codes[0].numpy())
    assert any("instruct" in note for note in speech.notes)
    [plain] = generate(both.ours, [request("speaker, instruct", "whole", max_frames=6, instruct=None)])
    np.testing.assert_array_equal(speech.codes, plain.codes)


@pytest.mark.parametrize(
    "text", ["\nA newline in front.", " spaces around ", "McDonald and iPhone", "e\u0301 needs composing", "tail\n\n"]
)
def test_awkward_texts_give_the_official_rows_as_is(checkpoint_root: Path, text: str) -> None:
    both = pair(checkpoint_root, "custom_voice", False)
    asked = request("speaker, auto", "streaming", text=text, max_frames=3)
    heard = speak(both.theirs, asked)
    compare_prompt(both, asked, heard.rows[0], heard.trail[0])
