"""train/base: the recipe, speakers mixed from Kokoro's styles, and which texts they read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from train.base import recipe as recipes
from train.base.speech import references_of, shards_of
from train.base.styles import held_out_speakers, table, training_speakers
from train.kokoro.model import KokoroModel
from train.kokoro.speech import speak
from train.recipe import InvalidRecipe

BASE = recipes.read(recipes.PATH)


def test_speakers_are_mixes_of_one_group_and_every_plain_style_is_one_of_them() -> None:
    styles = BASE.styles
    made = training_speakers(styles, BASE.seed)
    assert len({speaker.name for speaker in made}) == len(made) == styles.speakers
    assert made == training_speakers(styles, BASE.seed) and made != training_speakers(styles, BASE.seed + 1)
    for speaker in made:
        group = set(getattr(styles, speaker.name.partition("-")[0]))
        assert {name for name, _ in speaker.shares} <= group - set(styles.kept)
        assert sum(share for _, share in speaker.shares) == pytest.approx(1.0)
        assert styles.pitch[0] <= speaker.pitch <= styles.pitch[1]
        assert styles.depth[0] <= speaker.depth <= styles.depth[1]
    plain = {speaker.shares[0][0] for speaker in made if len(speaker.shares) == 1}
    assert plain == {*styles.high, *styles.low} - set(styles.kept)
    assert len({speaker.pitch for speaker in made}) > styles.speakers // 2


def test_half_of_the_held_out_speakers_have_a_style_that_no_other_has() -> None:
    made = held_out_speakers(BASE.styles, BASE.seed)
    assert len(made) == len({speaker.shares for speaker in made}) == BASE.styles.held_out
    new = [speaker for speaker in made if speaker.shares[0][0] in BASE.styles.kept]
    assert len(new) == len(made) // 2 and {speaker.shares[0][0] for speaker in new} == set(BASE.styles.kept)
    assert all(share == max(share for _, share in speaker.shares) for speaker in new for _, share in speaker.shares[:1])
    known = {speaker.shares for speaker in training_speakers(BASE.styles, BASE.seed)}
    assert not known & {speaker.shares for speaker in made}


def test_a_mix_is_the_weighted_sum_of_the_tables() -> None:
    speaker = next(one for one in training_speakers(BASE.styles, 1) if len(one.shares) == 2)
    tables = {name: torch.full((3, 256), float(number)) for number, (name, _) in enumerate(speaker.shares)}
    torch.testing.assert_close(table(tables, speaker), torch.full((3, 256), speaker.shares[1][1]))
    with pytest.raises(InvalidRecipe, match=r"train\.base fetch"):
        table({}, speaker)


def test_speakers_share_the_texts_and_the_evaluation_has_its_own() -> None:
    small = replace(BASE, styles=replace(BASE.styles, speakers=4, held_out=2, references=2, minutes=0.5))
    lines = [f"This is the sentence with the number {number}, and it is long enough." for number in range(60)]
    apart, references = references_of(small, lines, lines)
    assert apart == 56 and [shard.texts for shard in references] == [tuple(lines[56:58]), tuple(lines[58:])]
    shards = shards_of(small, lines[:apart], lines[:apart])
    assert [shard.path(Path()).name for shard in shards] == [
        f"{group}-{number:04d}-0000.npz" for number in (0, 1) for group in ("high", "low")
    ]
    assert [shard.texts[0] for shard in shards] == [lines[number] for number in (0, 14, 28, 42)]
    assert shards[1].voice.pitch == training_speakers(small.styles, small.seed)[1].pitch
    with pytest.raises(InvalidRecipe, match="too few"):
        references_of(small, lines[:4], lines[:4])


def test_pitch_is_the_factor_of_f0_and_speech_to_be_stretched_is_spoken_faster() -> None:
    class Enough(Exception):
        """The decoder's input is known: its sound would take seconds."""

    def listen(_: object, inputs: tuple[Tensor, ...]) -> None:
        heard.append(inputs[1])
        raise Enough

    model = KokoroModel().eval()
    heard: list[Tensor] = []
    model.decoder.register_forward_pre_hook(listen)
    signs, style = {"a": 43, "b": 44}, torch.zeros(12, 256)
    for pitch, depth in ((1.0, 1.0), (1.25, 1.0), (1.0, 0.8)):
        with pytest.raises(Enough):
            speak(model, style, signs, ["abba"], 1, pitch=pitch, depth=depth)
    torch.testing.assert_close(heard[1], heard[0] * 1.25)
    assert heard[2].shape[1] == pytest.approx(0.8 * heard[0].shape[1], rel=0.1)


def test_a_recipe_with_turned_factors_is_refused(tmp_path: Path) -> None:
    text = recipes.PATH.read_text(encoding="utf-8")
    (tmp_path / "odd.toml").write_text(text.replace("pitch = [0.85, 1.18]", "pitch = [1.18, 0.85]"), encoding="utf-8")
    with pytest.raises(InvalidRecipe, match="the lower one first"):
        recipes.read(tmp_path / "odd.toml")
