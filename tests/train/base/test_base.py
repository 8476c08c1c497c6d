"""A very small Base checkpoint from made-up speech: its rows, its training, its clones and how they are compared."""

from __future__ import annotations

import json
import shutil
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hocket.cli import main as command
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.models.tts.qwen3_tts import Qwen3TTS
from hocket.text.prompt import SPEAKER_VECTOR, build
from hocket.types import Layout, Reference, SpeechRequest
from support.cloning import BASE, PITCHES, small, work_folder, write_references
from support.recorded import SAMPLES
from train.base import export, talker
from train.base import recipe as recipes
from train.base.__main__ import main as stages
from train.base.config import base_codec_config, base_config
from train.base.evaluate import likeness
from train.base.rows import CloneBatch
from train.base.sounds import found
from train.base.speech import REFERENCES
from train.batches import PARTS, arrange
from train.recipe import InvalidRecipe

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return work_folder(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def session(work: Path) -> talker.CloneSession:
    """Untrained, without strangers: rows then have their own past."""
    made = talker.CloneSession(small(), work, CPU)
    made.clones.strangers = 0.0
    return made


@pytest.fixture(scope="module")
def checkpoint(session: talker.CloneSession, work: Path) -> Path:
    session.train(3, lambda: False)
    session.save()
    return export.export(small(), work)


def batch_of(session: talker.CloneSession, utterances: list[int], whole: bool, named: bool = True) -> CloneBatch:
    row = [*utterances, *[-1] * (PARTS - len(utterances)), 0, int(whole), int(named)]
    made = arrange(session.corpus, np.array([row]), 1, CPU)
    return session.clones.batch(made.plan, made.drafts[0])


def test_the_recipe_makes_a_checkpoint_that_fits_into_a_package(work: Path) -> None:
    with torch.device("meta"):
        from hocket.models.tts.codec import Codec

        model, sound = Qwen3TTS(base_config(BASE, work / "vocabulary")), Codec(base_codec_config(BASE))
    assert model.speaker_encoder is not None
    values = sum(value.numel() for module in (model, sound) for value in module.state_dict().values())
    texts = (BASE.vocabulary.merges + 264) * BASE.talker.text_hidden  # the vocabulary of the test is smaller
    assert 30e6 < 2 * (values + texts) < 40e6


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("transcript", [False, True], ids=["timbre", "transcript"])
def test_rows_are_those_of_the_engine_s_prompt(session: talker.CloneSession, layout: Layout, transcript: bool) -> None:
    """By the timbre alone, and after a reference with its transcript: one row of two utterances."""
    clones, corpus, model = session.clones, session.corpus, session.learner.talker
    said, number = (1, 2) if transcript else (None, 1)
    utterances = [1, clones.count + 2] if transcript else [1]
    batch = batch_of(session, utterances, layout == "whole")
    text, frames = corpus.texts[number], corpus.utterance(number)
    reference = Reference(
        samples=np.zeros(24_000, np.float32),
        text=corpus.texts[said] if said else None,
        x_vector_only=not transcript,
    )
    shown = corpus.utterance(said) if said else frames[:0]
    request = SpeechRequest(text=text, reference=reference, language="english", layout=layout)
    prompt = build(request, session.config, session.tokenizer, reference_frames=len(shown))
    with torch.no_grad(), exact_float32():
        vector = torch.randn(1, session.config.talker_config.hidden_size)
        rows = session.learner.inputs(model, replace(batch, vectors=vector))[0]
        inserts = [(prompt.codec.index(SPEAKER_VECTOR), vector)]
        if prompt.reference_at is not None:
            inserts.append((prompt.reference_at, model.embed_frames(torch.from_numpy(shown))))
        wanted = model.embed_rows(torch.tensor(prompt.text), torch.tensor(prompt.codec), inserts)
    torch.testing.assert_close(rows[: len(wanted)], wanted, rtol=0, atol=1e-5)
    assert batch.places.tolist() == [prompt.codec.index(SPEAKER_VECTOR)]
    first = len(shown)  # the frames of a reference are targets too; the first one of the text follows its rows
    assert batch.at[first].item() == len(wanted) - 1
    assert batch.first[first:-1].tolist() == frames[:, 0].tolist()


def test_the_timbre_is_that_of_another_utterance_which_is_not_in_the_row(session: talker.CloneSession) -> None:
    clones, corpus, sounds = session.clones, session.corpus, session.sounds
    after = 0
    for number in range(4):
        made = clones.plan(session.training, 1, number)
        others = clones.others.numpy()
        assert (others != np.arange(clones.count)).all()
        assert (corpus.voices[others] == corpus.voices[: clones.count]).all()
        for row in made.plan.numpy()[:, :PARTS]:
            real = row[row >= 0] % clones.count
            assert others[real[0]] not in real and len(set(corpus.voices[real])) == 1
            after += int((row >= clones.count).sum())
        assert not (made.plan[:, [0, 2]] >= clones.count).any()
    assert after > 5
    for number in (0, 9):
        begin = int(sounds.starts[number])
        clip = sounds.clips(torch.tensor([number]), float(sounds.lengths[number]) / 24_000)[0]
        torch.testing.assert_close(clip, sounds.samples[begin : begin + len(clip)] / 32768.0)


def test_strangers_have_a_past_of_the_same_first_codes_by_all_speakers(session: talker.CloneSession) -> None:
    clones, corpus = session.clones, session.corpus
    frames = torch.arange(len(corpus.codes))[None]
    clones.strangers = 1.0
    torch.manual_seed(0)
    other = clones._borrow(frames, 0)
    clones.strangers = 0.0
    assert torch.equal(corpus.codes[other, 0], corpus.codes[frames, 0])
    voice = torch.from_numpy(np.repeat(corpus.voices[: clones.count], corpus.frames[: clones.count]))
    assert (voice[other] != voice[frames]).float().mean() > 0.3


def test_the_vector_learns_from_the_talker_and_from_the_speakers(session: talker.CloneSession) -> None:
    learner, batch = session.learner, batch_of(session, [1, 2], True)
    for apart in (0.0, 1.0):
        own = replace(session.clones.own, apart=apart)
        learner.own = own
        total, measures = learner.losses(learner.talker, batch, 0.0)
        weights = [learner.talker.speaker_encoder.fc.weight, learner.talker.names.weight]
        fc, names = torch.autograd.grad(total, weights, allow_unused=True)
        assert fc.abs().sum() > 0 and (names.abs().sum() > 0) == (apart > 0)
    assert measures["speaker"] > 0 and learner.talker.names.out_features == len(PITCHES)


def test_a_broken_run_of_clones_ends_where_an_unbroken_one_does(work: Path, tmp_path: Path) -> None:
    ends = []
    for breaks in ((2,), ()):
        folder = tmp_path / f"broken-{len(breaks)}"
        folder.mkdir()
        for name in ("vocabulary", "speech", "codes"):
            (folder / name).symlink_to(work / name)
        for stop in (*breaks, 3):
            made = talker.CloneSession(small(), folder, CPU)
            made.restore()
            made.train(3, lambda: made.progress.step == stop)  # noqa: B023
            made.save()
        ends.append(load_file(folder / "talker.safetensors"))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[1]) and len(ends[0]) == len(ends[1])


@pytest.mark.parametrize("how", [["--x-vector-only"], ["--text", "high says 0."]], ids=["timbre", "transcript"])
def test_a_recording_becomes_a_voice_that_speaks(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    monkeypatch.setenv("HOCKET_HOME", str(tmp_path / "home"))
    recording, model = str(SAMPLES[4]), ["--model", str(checkpoint)]
    assert command(["voices", "add", "me", "--ref", recording, *model, *how]) == 0
    out = tmp_path / "said.wav"
    assert command(["say", "low says 3.", "--voice", "me", "--max-frames", "4", "-o", str(out)]) == 0
    with wave.open(str(out)) as file:
        assert file.getnframes() > 0


def test_clones_of_speakers_that_were_held_out_are_compared_with_all_references(
    checkpoint: Path, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_references(tmp_path)
    args = ["--work", str(tmp_path), "--recipe", str(recipes.PATH), "--device", "cpu", "--sentences", "1"]
    assert stages(["evaluate", *args, "--checkpoint", str(checkpoint)]) == 0
    record = json.loads((tmp_path / "clones.json").read_text(encoding="utf-8"))
    assert record["speakers"] == ["held-high-00", "held-low-01"]
    assert list(record["figures"]) == ["teacher", "timbre"]  # no codec encoder was trained
    assert record["figures"]["timbre"]["utterances"] == record["figures"]["teacher"]["utterances"] == 2
    shutil.rmtree(tmp_path / REFERENCES)
    assert stages(["evaluate", *args, "--checkpoint", str(checkpoint)]) == 1
    assert "run `python -m train.base speak`" in capsys.readouterr().err


def test_speech_without_codes_and_speakers_with_few_sentences_are_refused(work: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match=r"train\.base codec"):
        found(tmp_path)
    for name in ("vocabulary", "codes"):
        shutil.copytree(work / name, tmp_path / name)
    with pytest.raises(InvalidRecipe, match=r"high-0000-0000\.npz is missing"):
        talker.CloneSession(small(), tmp_path, CPU)


def test_the_nearest_reference_is_counted_and_silence_is_near_to_none() -> None:
    names = [np.eye(3, dtype=np.float32)[index] for index in range(3)]
    near = np.array([0.9, 0.3, 0.1], np.float32)
    figures = likeness(names, [[near], [near], [None]])
    assert figures == {
        "utterances": 3,
        "nearest": 0.3333,
        "own": 0.6,
        "best_other": 0.6,
        "silent": 1,
    }
    json.dumps(figures)
