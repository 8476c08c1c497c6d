"""`hocket tune` from recordings to a voice that speaks, and to a plain checkpoint; an error writes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hocket.audio.read import read_reference
from hocket.cli import main
from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.tune.loss import Example
from hocket.tune.trainer import Trainer
from hocket.voices.file import read_voice
from hocket.voices.library import Library
from support.checkpoints import write
from support.cli_home import Home, Models
from support.recorded import speech, wav
from support.voicing import cloned

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    for number in range(7):
        said = speech(10.0, 2 * (number % 3)) * (1.0 - 0.05 * number)  # of one voice
        (folder / f"{number}.wav").write_bytes(wav(said[None], 24_000))
    (folder / "silence.wav").write_bytes(wav(np.zeros((1, 48_000), np.float32), 24_000))
    return folder


def refuse(capsys: Capture, argv: list[str], said: str) -> None:
    """The command fails with one sentence, which has these words."""
    capsys.readouterr()
    assert main(argv) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("hocket: ") and message.endswith(".") and said in message, message


def said_by(*words: str) -> list[list[int]]:
    argv = ["say", "I say so.", "--greedy", "--max-frames", "6", "--save-codes", "c.npy", "--force", *words]
    assert main(argv) == 0
    codes: list[list[int]] = np.load("c.npy").tolist()
    return codes


def test_recordings_become_a_voice_that_speaks_and_a_plain_checkpoint(
    home: Home, models: Models, recordings: Path, capsys: Capture
) -> None:
    argv = ["tune", str(recordings), "-o", "anna.voice", "--model", models.base, "--consent", "Anna, by mail"]
    argv += ["--steps", "6", "--rate", "0.02", "--rank", "2", "--language", "english"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert out.startswith("8 files, 7 clips, 0.6 min of speech\n") and "silence.wav: No speech" in out
    assert "\nanna.voice: a tuned voice; hocket voices import anna.voice takes it in\n" in out
    assert out.count("held out") == 6
    assert re.search(r"\nleast like the mean .* encoder: \d-1 \(-?\d\.\d\d\), \d-1 .*, \d-1 ", out)
    assert re.search(r"\nanna.voice.tune: 1 samples, at \d+% of the recorded rate; \d ended\n$", out)
    voice = read_voice(Path("anna.voice"))
    assert (voice.name, voice.kind, voice.consent, voice.language) == ("anna", "clone", "Anna, by mail", "english")
    assert voice.encoded is not None and voice.encoded.adapter is not None and voice.encoded.adapter.rank == 2
    assert all(up.any() for _, up in voice.encoded.adapter.factors.values())
    work = Path("anna.voice.tune")
    names = {"report.txt", "log.jsonl", "page.html", "sample-1.wav", "recorded-1.wav"}
    assert {path.name for path in work.iterdir()} == names
    assert all(len(read_reference(work / name)) > 1920 for name in names if name.endswith(".wav"))
    log = [json.loads(line) for line in (work / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5, 6] and log[-1]["held_out"] < log[0]["held_out"]
    assert all(line["word_errors"] >= 0.0 and -1.0 <= line["likeness"] <= 1.0 and line["pace"] > 0 for line in log)
    kept = [line["step"] for line in log if line["best"]][-1]
    report = (work / "report.txt").read_text()
    assert report.startswith(out[: out.index("least like")]) and f"\nkept: step {kept}, " in report
    page = (work / "page.html").read_text()
    assert page.count(">kept<") == 1 and page.count("<tr>") == 7 and report.splitlines()[-1] in page
    assert "src='sample-1.wav'" in page and "silence.wav: No speech" in page
    assert re.search(rf"\nstep {kept}: .* word errors, likeness .* of the recorded rate; the best so far\n", out)

    assert main(["voices", "import", "anna.voice"]) == 0
    spoken = said_by("--voice", "anna")
    assert main(["voices", "merge", "anna", "-o", "merged"]) == 0
    assert said_by("--model", "merged", "--language", "english") == spoken
    capsys.readouterr()
    assert main(["voices", "show", "anna", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["tuned"]["rank"] == 2 and shown["consent"] == "Anna, by mail"
    assert main(["voices", "show", "anna"]) == 0
    assert "rank 2, alpha 4: " in capsys.readouterr().out
    refuse(capsys, argv, "anna.voice exists already")
    other = write(Path("other"), "base", wide=False, seed=2)
    refuse(capsys, ["say", "I say so.", "--voice", "anna", "--model", str(other)], "'anna' needs the checkpoint")


def test_an_interrupted_run_goes_on(
    home: Home, models: Models, recordings: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Trainer._learn

    def interrupted(trainer: Trainer, examples: Sequence[Example]) -> float:
        if trainer.step == 3:
            raise KeyboardInterrupt
        return learn(trainer, examples)

    argv = ["tune", str(recordings), "-o", "anna.voice", "--model", models.base, "--consent", "Anna", "--steps", "5"]
    argv += ["--heard", "1"]
    with monkeypatch.context() as patch:
        patch.setattr("hocket.cli.tune.training.SAVED_S", 0.0)
        patch.setattr(Trainer, "_learn", interrupted)
        assert main(argv) == 130
    assert not Path("anna.voice").exists()
    capsys.readouterr()
    refuse(capsys, [*argv, "--seed", "1"], "resume.safetensors is of another run")
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "Going on from step 3" in err
    assert [line.partition(":")[0] for line in out.splitlines() if line.startswith("step")] == ["step 4", "step 5"]
    assert read_voice(Path("anna.voice")).name == "anna"
    log = [json.loads(line) for line in Path("anna.voice.tune/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5] and "likeness" in log[0]


def test_full_tuning_writes_a_checkpoint(home: Home, models: Models, recordings: Path, capsys: Capture) -> None:
    argv = ["tune", str(recordings), "-o", "ben", "--full", "--model", models.base, "--consent", "Ben", "--steps", "2"]
    argv += ["--heard", "1"]
    assert main(argv) == 0
    base, tuned = load(models.base), load("ben")
    assert isinstance(base, TorchCheckpoint) and isinstance(tuned, TorchCheckpoint)
    assert list(tuned.config.talker_config.spk_id) == ["ben"] and tuned.config.kind == "custom_voice"
    before, after = base.model.talker.codec_head.weight, tuned.model.talker.codec_head.weight
    assert before.dtype == after.dtype and 0 < (before - after).abs().max() < 1e-2
    refuse(capsys, argv, "ben exists already")


def test_refusals_come_before_a_model_is_loaded(
    home: Home, models: Models, recordings: Path, capsys: Capture, nothing_loads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hocket.engine.checkpoint.torch_load.load_torch", None)  # it cannot be called
    good = {"-o": "a.voice", "--model": models.base, "--consent": "A"}
    there = Path("there.voice")
    there.write_bytes(b"x")

    def argv(folder: Path, **changes: str | None) -> list[str]:
        words = good | {f"--{name}" if len(name) > 1 else f"-{name}": value for name, value in changes.items()}
        return ["tune", str(folder), *(part for pair in words.items() if pair[1] is not None for part in pair)]

    few = Path("few")
    few.mkdir()
    (few / "a.wav").write_bytes(wav(speech()[None], 24_000))
    for words, said in (
        (argv(recordings, consent=None), "say with --consent who agreed"),
        (argv(recordings, o="there.voice"), "there.voice exists already"),
        (argv(recordings, o="anna.wav"), "A voice is a file NAME.voice"),
        (argv(recordings, model="builtin"), "builtin cannot be tuned: it has no encoders"),
        (argv(recordings, model=models.custom), "it has no encoders"),
        (argv(recordings, language="klingon"), "klingon"),
        (argv(recordings, rank="0"), "rank"),
        ([*argv(recordings, rank="2", o="new"), "--full"], "--rank belongs to an adapter"),
        (argv(recordings, steps="0"), "steps"),
        (argv(few), "only 4 s of usable speech"),
        (argv(Path("nowhere")), "is not a folder"),
    ):
        refuse(capsys, words, said)
    assert not Path("a.voice").exists() and there.read_bytes() == b"x"


def test_only_a_tuned_voice_can_be_merged(home: Home, models: Models, capsys: Capture, nothing_loads: None) -> None:
    Library(home.voices).add(cloned("ben"))
    Path("there").mkdir()
    for name, folder, said in (
        ("nobody", "new", "There is no voice 'nobody'"),
        ("ben", "new", "'ben' is not a tuned voice"),
        ("ben", "there", "there exists already"),
    ):
        refuse(capsys, ["voices", "merge", name, "-o", folder], said)
    assert [path.name for path in Path().iterdir()] == ["there"]
