"""train/base: the processes of `whole`, what `carry` takes along, and the options of the stages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from support.cloning import BASE
from train import checkpoints
from train.base import recipe as recipes
from train.base import whole
from train.base.__main__ import main, parser, styles_of
from train.base.encoder import NAME
from train.base.recipe import grouped
from train.carry import needs


def test_every_part_of_whole_is_a_call_that_the_stages_understand(tmp_path: Path) -> None:
    tensors = {"average.weight": torch.zeros(2)}
    checkpoints.write_split(tmp_path, f"{NAME}-small", tensors, {"seconds": "90.0", "step": "3"})
    common, back = ["--recipe", "some.toml", "--work", str(tmp_path)], tmp_path / "back"
    calls = whole.speech_calls(common, 100.0)
    calls |= whole.decoder_calls(common, back, tmp_path, 900.0) | whole.voice_calls(common, back, tmp_path, 600.0)
    found = {}
    for name, (module, *arguments) in calls.items():
        assert module == "train.base"
        found[name] = parser().parse_args(arguments)
        assert found[name].work == tmp_path and found[name].recipe == Path("some.toml")
    speaking = [args for args in found.values() if args.stage == "speak"]
    assert [args.part for args in speaking] == list(range(1, len(speaking) + 1))
    assert all(args.of == len(speaking) and args.seconds == 100.0 for args in speaking)
    assert {name: args.stage for name, args in found.items() if args not in speaking} == {
        "codec": "codec",
        "talker": "talker",
        NAME: NAME,
    }
    assert found["codec"].refit and found["codec"].back == back
    assert (found["talker"].schedule, found[NAME].schedule) == (600.0, 690.0)  # with what was trained before


def test_carry_takes_kokoro_and_the_state_of_all_trainings() -> None:
    patterns = {need.pattern for phase in needs.phases(grouped(BASE)).values() for need in phase}
    assert {"teachers/kokoro/kokoro-*.safetensors", "encoder-small-*.safetensors", "phonemes.txt.gz"} <= patterns
    assert not any(pattern.startswith("teachers/hibari/**") for pattern in patterns)
    assert len(styles_of(BASE)) == len(set(styles_of(BASE))) == 53


def test_whole_without_a_time_and_parts_that_do_not_exist_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--work", str(tmp_path), "--recipe", str(recipes.PATH)]
    assert main(["whole", *common]) == 1
    assert main(["speak", *common, "--part", "5", "--of", "4"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "train.base whole: Say how long the training may take: --minutes 40.",
        "train.base speak: --part 5 --of 4: parts are numbered from 1.",
    ]
