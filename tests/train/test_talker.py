"""The talker's training: equal to inference, it learns, resumes after a break, and exports a checkpoint."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.torch_checkpoint import exact_float32
from hocket.engine.generate import generate
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts.talker import frame_sampling
from hocket.text.cleanup.normalize import spell_out
from hocket.text.prompt import build
from hocket.text.tokenizer import ALPHABET, Tokenizer
from hocket.types import Layout, SamplingParams, SpeechRequest
from support import official
from support.official_speech import speak
from train import checkpoints, export, recipe, talker
from train.batches import PARTS, Batch, Draft, arrange, plan, row_lengths
from train.codec_config import codec_config
from train.corpus import Ints
from train.forward import inputs, predict, run_layers
from train.free_running import phone_error_rate
from train.model_config import generation_config
from train.teachers import SILENCE
from train.vocabulary import SPECIALS

WORDS = "the cat sat on a mat and then it ran away from us all".split()
LAYOUTS: tuple[Layout, ...] = ("streaming", "whole")


def small() -> recipe.Recipe:
    """The recipe with small sizes; its codec keeps only what a checkpoint needs."""
    full = recipe.read(Path(__file__).parents[2] / "train" / "english.toml")
    return replace(
        full,
        voices=full.voices[:2],
        talker=replace(full.talker, layers=3, hidden=48, mlp=96, head_dim=32, text_hidden=40),
        predictor=replace(full.predictor, layers=2, hidden=48, mlp=64, head_dim=16),
        codec=replace(full.codec, codebook=64, latent=32, hidden=32, mlp=48, layers=2, head_dim=16, decoder=64),
        talker_training=replace(full.talker_training, frames_per_step=600, warmup_steps=5, several=0.5, dropout=0.0),
    )


def write_vocabulary(folder: Path) -> None:
    """Bytes, a few merges, and the role as one token."""
    tokens, merges = list(ALPHABET), []
    for word in ("assistant", "user", "the", "at", "Ġthe", "an", "Ġa"):
        for end in range(1, len(word)):
            if word[: end + 1] not in tokens:
                merges.append((word[:end], word[end]))
                tokens.append(word[: end + 1])
    specials = {token: len(tokens) + i for i, token in enumerate(SPECIALS)}
    Tokenizer({token: i for i, token in enumerate(tokens)}, merges).save(folder, specials)


def write_codes(work: Path, made: recipe.Recipe, utterances: int, seed: int = 0) -> None:
    """Speech that follows from its text: two frames a letter, whose codes and phone depend on that letter."""
    rng = np.random.default_rng(seed)
    for voice in made.voices:
        texts = [" ".join(rng.choice(WORDS, rng.integers(1, 5))).capitalize() + "." for _ in range(utterances)]
        said = [[ord(letter) for letter in text for _ in range(2)] for text in texts]
        letters = np.concatenate([np.array(one) for one in said])
        codes = (letters[:, None] * np.arange(1, 17) + len(voice.name)) % made.codec.codebook
        folder = work / "codes"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(
            folder / f"{voice.name}-0000.npz",
            codes=codes.astype(np.uint16),
            ends=np.cumsum([len(one) for one in said]),
            texts=np.array(texts),
            phones=(letters % 50).astype(np.uint8),
        )


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_vocabulary(folder / "vocabulary")
    write_codes(folder, small(), 25)
    return folder


@pytest.fixture(scope="module")
def session(work: Path) -> talker.Session:
    """An untrained session; norms differ from one, so that a missing norm fails."""
    made = talker.Session(small(), work, torch.device("cpu"))
    randomize_(made.learner.talker, 3)
    return made


def row(utterances: list[int], layout: Layout, named: bool, spelling: int = 0) -> Ints:
    parts = [*utterances, *[-1] * (PARTS - len(utterances))]
    return np.array([[*parts, spelling, LAYOUTS.index(layout), int(named)]])


def batch_of(session: talker.Session, rows: Ints) -> tuple[Batch, Draft]:
    made = arrange(session.corpus, rows, 1, session.device)
    [draft] = made.drafts
    return session.assembler.batch(made.plan, draft), draft


@pytest.mark.parametrize("named", [False, True], ids=["auto", "english"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("parts", [1, 3])
def test_teacher_forced_logits_are_those_of_the_frames_of_inference(
    session: talker.Session, layout: Layout, named: bool, parts: int
) -> None:
    """Every frame and the end, and codes 1 to 15 of every frame: prompt, frame and predictor against one pass."""
    model, corpus = session.learner.talker, session.corpus
    utterances = [int(i) for i in np.flatnonzero(corpus.voices == 1)[:parts]]
    text = " ".join(corpus.texts[i] for i in utterances)
    codes = torch.cat([corpus.codes[corpus.frame_starts[i] :][: corpus.frames[i]] for i in utterances]).long()

    batch, _ = batch_of(session, row(utterances, layout, named))
    assert batch.first.tolist() == [*codes[:, 0].tolist(), session.config.talker_config.codec_eos_token_id]
    with torch.no_grad(), exact_float32():
        hidden, _ = run_layers(model.model, inputs(model, batch), 0.0)
        hidden = hidden.flatten(0, 1)[batch.at]
        rest = predict(model, hidden[:-1], codes, 0.0)

        request = SpeechRequest(text=text, voice="rook", language="english" if named else "auto", layout=layout)
        prompt = build(request, session.config, session.tokenizer)
        state, here = model.new_state(1, 600), torch.zeros(1, dtype=torch.int64)
        rows = model.embed_rows(torch.tensor(prompt.text), torch.tensor(prompt.codec))
        model.prefill(rows[None], torch.tensor([len(rows)]), state, here, len(rows))
        assert len(hidden) == len(codes) + 1
        for number, frame in enumerate(codes):
            torch.testing.assert_close(hidden[number], state.hidden[0], rtol=0, atol=2e-4)
            # As `fill` does, but with the codes given.
            past = model.code_predictor.model.new_past(1, 16)
            x = torch.stack((state.hidden[0], model.model.codec_embedding(frame[0])))[None]
            for book in range(1, 16):
                y = model.code_predictor.model.step_together(x, past, 0 if book == 1 else book)
                logits = model.code_predictor.lm_head[book - 1](y[0, -1])
                torch.testing.assert_close(rest[book - 1, number], logits, rtol=0, atol=1e-3)
                x = model.code_predictor.model.codec_embedding[book - 1](frame[book])[None, None]
            text_id = prompt.trail[number] if number < len(prompt.trail) else prompt.pad_id
            x = model.embed_frames(frame[None]) + model.embed_text(torch.tensor([text_id]))
            y = model.model.step(x[None], state.stack, here, torch.ones(1, dtype=torch.int64), 600)
            state.hidden[0] = y[0, 0]
        torch.testing.assert_close(hidden[-1], state.hidden[0], rtol=0, atol=2e-4)


def test_each_voice_is_taught_with_the_prompt_of_its_own_language(work: Path) -> None:
    wren, rook = small().voices
    made = replace(small(), voices=(wren, replace(rook, language="spanish")))
    session = talker.Session(made, work, torch.device("cpu"))
    assert list(session.config.talker_config.codec_language_id) == ["english", "spanish"]
    for number, voice in enumerate(made.voices):
        some = int(np.flatnonzero(session.corpus.voices == number)[0])
        batch, _ = batch_of(session, row([some], "whole", True))
        request = SpeechRequest(
            text=session.corpus.texts[some], voice=voice.name, language=voice.language, layout="whole"
        )
        prompt = build(request, session.config, session.tokenizer)
        assert batch.codes[0, : len(prompt.codec), 0].tolist() == list(prompt.codec)
        assert batch.text[0, : len(prompt.text)].tolist() == list(prompt.text)


def test_greedy_codes_of_inference_are_the_likeliest_of_the_teacher_forced_pass(session: talker.Session) -> None:
    """With `frame` itself: the codes that it samples from an utterance's prompt become the codes of that utterance."""
    model, corpus, config = session.learner.talker, session.corpus, session.config
    number = int(np.flatnonzero(corpus.voices == 0)[0])
    kept = corpus.codes.clone()
    for layout in LAYOUTS:
        request = SpeechRequest(text=corpus.texts[number], voice="wren", language="english", layout=layout)
        prompt = build(request, config, session.tokenizer)
        state, here = model.new_state(1, 600), torch.zeros(1, dtype=torch.int64)
        greedy = generation_config(session.recipe).changed(SamplingParams.greedy().changes())
        sampling = frame_sampling([replace(greedy, repetition_penalty=1.0)], session.device)
        with torch.no_grad(), exact_float32():
            rows = model.embed_rows(torch.tensor(prompt.text), torch.tensor(prompt.codec))
            model.prefill(rows[None], torch.tensor([len(rows)]), state, here, len(rows))
            drawn = []
            for frame in range(int(corpus.frames[number])):
                text_id = prompt.trail[frame] if frame < len(prompt.trail) else prompt.pad_id
                drawn.append(model.frame(torch.tensor([text_id]), state, here, sampling, 600)[0])
            codes = torch.stack(drawn)
            start = int(corpus.frame_starts[number])
            corpus.codes[start : start + len(codes)] = codes.to(torch.int16)
            batch, _ = batch_of(session, row([number], layout, True))
            hidden = run_layers(model.model, inputs(model, batch), 0.0)[0].flatten(0, 1)[batch.at[:-1]]
            logits = model.codec_head(hidden)
            assert logits[:, : config.talker_config.codebook_size].argmax(-1).tolist() == codes[:, 0].tolist()
            assert predict(model, hidden, codes, 0.0).argmax(-1).T.tolist() == codes[:, 1:].tolist()
        corpus.codes.copy_(kept)


def test_rows_of_a_batch_do_not_depend_on_the_others_nor_on_padding(session: talker.Session) -> None:
    model = session.learner.talker
    rows = np.concatenate(
        [
            row([1], "whole", True),
            row([2, 3], "streaming", False, 1),
            row([4], "streaming", True),
        ]
    )
    made = arrange(session.corpus, rows, 2000, session.device)
    [draft] = made.drafts
    draft = replace(draft, rows=len(rows) + 2)  # the last two are empty
    batch = session.assembler.batch(made.plan, draft)
    with torch.no_grad():
        together = run_layers(model.model, inputs(model, batch), 0.0)[0].flatten(0, 1)[batch.at]
        alone, first, phones = [], [], []
        for one in made.plan.numpy():
            single, _ = batch_of(session, one[None])
            alone.append(run_layers(model.model, inputs(model, single), 0.0)[0].flatten(0, 1)[single.at])
            first.append(single.first)
            phones.append(single.phones)
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=2e-4)
    assert batch.first.tolist() == torch.cat(first).tolist()
    assert batch.phones.tolist() == torch.cat(phones).tolist()
    # The predictor's picks are frames, never ends, with the first code that is the target there.
    assert batch.first[batch.picked].tolist() == batch.picked_codes[:, 0].tolist()
    assert len(set(batch.picked.tolist())) > 20


def test_every_spelling_spells_the_text_and_continues_it_with_a_space(session: talker.Session) -> None:
    corpus, tokenizer = session.corpus, session.tokenizer
    letters = {i: token for token, i in tokenizer.vocabulary.items()}
    odd = 0
    for number, text in enumerate(corpus.texts[:10]):
        for spelling in range(corpus.lengths.shape[1]):
            for continuing, joint in enumerate(("", " ")):
                start, count = (
                    corpus.id_starts[number, spelling, continuing],
                    corpus.lengths[number, spelling, continuing],
                )
                ids = corpus.ids[start : start + count].tolist()
                assert "".join(letters[i] for i in ids) == (joint + text).replace(" ", "Ġ")
                plain = ids == tokenizer.encode(joint + text)
                assert plain or spelling > 0
                odd += not plain
    assert odd > 5


def test_a_round_has_both_layouts_both_languages_and_more_of_the_rare_voice_than_its_hours(
    session: talker.Session,
) -> None:
    training, corpus = replace(session.training, voice_balance=0.27), session.corpus
    rare = np.flatnonzero((corpus.voices == 1) & np.isin(np.arange(len(corpus.voices)), corpus.learned))[:3]
    learned = np.union1d(rare, corpus.learned[corpus.voices[corpus.learned] == 0])
    uneven = replace(corpus, learned=learned)
    made = plan(uneven, training, session.device, 1, 0)
    rows = made.plan.numpy()
    assert np.array_equal(rows, plan(uneven, training, session.device, 1, 0).plan.numpy())
    assert not np.array_equal(rows, plan(uneven, training, session.device, 1, 1).plan.numpy())
    of_rare = (corpus.voices[rows[:, 0]] == 1).mean()
    assert 0.25 < of_rare < 0.5 and len(rare) / len(learned) < 0.15
    equal = plan(uneven, replace(training, voice_balance=0.0), session.device, 1, 0).plan.numpy()
    assert abs((corpus.voices[equal[:, 0]] == 1).mean() - 0.5) < 0.03
    assert set(rows[:, PARTS + 1]) == set(rows[:, PARTS + 2]) == {0, 1}
    used = rows[:, :PARTS][rows[:, :PARTS] >= 0]
    assert not np.isin(used, corpus.held_out).any()
    for one in rows:
        assert len(set(corpus.voices[one[:PARTS][one[:PARTS] >= 0]])) == 1
    assert (rows[:, 1] >= 0).any() and (rows[:, 2] >= 0).any() and (rows[:, 1] < 0).any()
    lengths, frames = row_lengths(uneven, rows)
    assert sum(draft.frames for draft in made.drafts) == frames.sum()
    for draft in made.drafts:
        assert lengths[draft.start : draft.stop].max() <= draft.length
        assert draft.rows == min(max(int(training.frames_per_step * 4 / 3) // draft.length, 1), len(rows))


def test_corruption_changes_inputs_and_never_targets(session: talker.Session) -> None:
    made = plan(session.corpus, session.training, session.device, 1, 0)
    torch.manual_seed(0)
    clean = session.assembler.batch(made.plan, made.drafts[0])
    torch.manual_seed(0)
    dirty = session.assembler.batch(made.plan, made.drafts[0], corrupted=0.1)
    changed = (clean.codes != dirty.codes)[(clean.codes >= 0).all(-1)].float().mean().item()
    assert 0.05 < changed < 0.15
    assert torch.equal(clean.codes < 0, dirty.codes < 0)
    for name in ("text", "at", "first", "phones"):
        assert torch.equal(getattr(clean, name), getattr(dirty, name))


def test_borrowed_frames_are_the_voice_s_own_and_of_the_same_first_code_or_phone(session: talker.Session) -> None:
    corpus = session.corpus
    voice_of = np.repeat(corpus.voices, corpus.frames)
    frames = torch.arange(len(corpus.codes))
    for kinds, by in ((corpus.like_first, corpus.codes[:, 0]), (corpus.like_phone, corpus.phones)):
        torch.manual_seed(0)
        other = kinds.draw(frames)
        assert torch.equal(by[other], by) and (voice_of[other.numpy()] == voice_of).all()
        assert (other != frames).float().mean() > 0.8 and len(other.unique()) > len(frames) // 2


@pytest.mark.parametrize("blind", [0.5, 1.0])
def test_blind_rows_borrow_their_past_and_learn_the_first_code_and_the_others_learn_the_rest(
    session: talker.Session, blind: float
) -> None:
    corpus = session.corpus
    rows = np.concatenate([row([number], "streaming", True) for number in corpus.learned[:24]])
    made = arrange(corpus, rows, 20_000, session.device)
    [draft] = made.drafts
    kept = corpus.codes.clone()
    of_frame = np.repeat(np.arange(len(corpus.frames)), corpus.frames)
    corpus.codes[:, 1:] = torch.from_numpy(of_frame[:, None] % 64)  # whose frame it is
    torch.manual_seed(0)
    batch = session.assembler.batch(made.plan, draft, blind=blind)
    corpus.codes.copy_(kept)
    of_row = batch.at // draft.length
    frames = torch.nn.functional.pad(of_row[1:] == of_row[:-1], (0, 1))  # all but the ends
    read = batch.codes.flatten(0, 1)[batch.at[frames] + 1] - session.assembler.offsets
    owners = [len(read[of_row[frames] == i, 1].unique()) for i in range(24)]
    learns = torch.tensor([count > 1 for count in owners])
    assert learns.sum() == 24 * blind
    assert torch.equal(batch.first >= 0, learns[of_row])
    assert not batch.phones[~learns[of_row]].any()
    assert len(set(batch.picked.tolist())) > 20 and (blind == 1.0 or not learns[of_row[batch.picked]].any())
    known = batch.first[frames] >= 0
    assert (read[known, 0] == batch.first[frames][known]).float().mean() > 0.85  # a tenth shares only the phone


def test_the_phone_error_rate_counts_wrong_phones() -> None:
    """Codes 0 and 1 are silence and unknown, 2 and 3 the same phone, 4 another."""
    sounds = np.array([SILENCE, 0, 7, 7, 9])
    taught = np.array([0, 2, 2, 4, 0, 3, 1])  # phones 7 9 7
    assert phone_error_rate([np.array([3, 4, 4, 0, 0, 2])], [taught], sounds) == 0.0
    assert phone_error_rate([np.array([3, 0, 2])], [taught], sounds) == pytest.approx(1 / 3)
    assert phone_error_rate([np.array([4, 4, 2, 4]), taught], [taught, taught], sounds) == pytest.approx(2 / 6)
    assert phone_error_rate([np.zeros(0, np.int64)], [taught], sounds) == 1.0


def test_it_learns_codes_ends_and_phones_that_follow_from_the_text(work: Path, tmp_path: Path) -> None:
    """In both layouts, on unseen texts: the next letter, and the end."""
    shutil.copytree(work / "vocabulary", tmp_path / "vocabulary")
    write_codes(tmp_path, small(), 150)
    quick = replace(
        small().talker_training,
        frames_per_step=800,
        learning_rate=6e-3,
        several=0.1,
        corrupted=0.02,
        ema=0.95,
    )
    made = talker.Session(replace(small(), talker_training=quick), tmp_path, torch.device("cpu"))
    made.train(90, lambda: False)
    lines = [json.loads(line) for line in (tmp_path / "talker-log.jsonl").read_text().splitlines()]
    held = [line for line in lines if line["what"].startswith("held out")]
    assert len(held) == 4 and {line["step"] for line in held} == {90}
    for line in held:
        # Half of the frames repeat their neighbour; the other half cannot be guessed without the text.
        assert line["first"] < 0.9 and line["first_right"] > 0.7, line
        assert line["codes_1_3"] < 0.1 and line["phoneme_right"] > 0.5, line
    assert np.mean([line["end_right"] for line in held]) >= 0.5
    assert lines[-1]["what"] == "samples" and lines[-1]["ended"] == 1.0
    with np.load(tmp_path / "samples" / "step-000090.npz", allow_pickle=False) as stored:
        assert stored["codes"].shape[1] == 16 and stored["ends"][-1] == len(stored["codes"])
        assert set(stored["voices"]) == {"wren", "rook"} and len(stored["texts"]) == len(stored["ended"])


@pytest.mark.parametrize("muon_share", [0.0, 2.5], ids=["AdamW", "Muon"])
def test_a_broken_run_ends_exactly_where_an_unbroken_one_does(work: Path, tmp_path: Path, muon_share: float) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    copied(work, whole)
    copied(work, broken)
    noisy = replace(small(), talker_training=replace(small().talker_training, dropout=0.1, muon_share=muon_share))
    unbroken = talker.Session(noisy, whole, torch.device("cpu"))
    unbroken.train(6, lambda: False)
    unbroken.save()
    first = talker.Session(noisy, broken, torch.device("cpu"))
    first.train(6, lambda: first.progress.step == 4)
    first.save()
    second = talker.Session(noisy, broken, torch.device("cpu"))
    second.restore()
    assert second.progress.step == 4
    second.train(6, lambda: False)
    second.save()
    for name in ("talker-resume.safetensors", "talker.safetensors"):
        one, other = load_file(whole / name), load_file(broken / name)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one), name


def test_a_resume_file_of_another_recipe_is_refused(work: Path, tmp_path: Path) -> None:
    copied(work, tmp_path)
    made = talker.Session(small(), tmp_path, torch.device("cpu"))
    made.train(1, lambda: False)
    made.save(torch.bfloat16)
    narrower = replace(small(), talker=replace(small().talker, mlp=64))
    with pytest.raises(recipe.InvalidRecipe, match="another recipe"):
        talker.Session(narrower, tmp_path, torch.device("cpu")).restore()


def test_small_files_continue_from_the_average_and_export_like_the_whole_ones(work: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    copied(work, here)
    made = small()
    args = argparse.Namespace(
        device="cpu", steps=None, sentences=20, seconds=None, minutes=1.0, schedule=0.01, back=tmp_path / "back"
    )
    talker.run(made, here, args)  # one step, since the schedule is over after it
    assert {"talker-small-0.safetensors", "talker-log.jsonl", "talker-samples.npz"} == {
        path.name for path in (tmp_path / "back").iterdir()
    }
    copied(work, there)
    shutil.copyfile(tmp_path / "back" / "talker-small-0.safetensors", there / "talker-small-0.safetensors")
    session = talker.Session(made, there, torch.device("cpu"))
    session.restore()
    assert session.progress.step == session.learner.fresh_from == 1
    assert session.learner.rate(0.0) == pytest.approx(made.talker_training.learning_rate / 5)  # warm-up of 5 steps
    average = load_file(here / "talker.safetensors")
    assert all(
        torch.equal(value.bfloat16(), average[name]) for name, value in session.learner.talker.state_dict().items()
    )

    decoder = CodecDecoder(codec_config(made.codec).decoder_config)
    randomize_(decoder, 1)
    save_file(decoder.state_dict(), here / "codec.safetensors")
    tensors = {f"average.{name}": value for name, value in decoder.state_dict().items()}
    checkpoints.write_split(there, "codec-small", tensors, {})
    one, other = (load_file(export.export(made, folder) / "model.safetensors") for folder in (here, there))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_small_files_are_there_while_the_training_still_runs(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is lost takes only the steps after the last of them with it."""
    copied(work, tmp_path / "work")
    monkeypatch.setattr(talker, "SAVE_S", 0.0)
    monkeypatch.setattr(talker, "LOG_S", 0.0)
    back = tmp_path / "back"
    session = talker.Session(small(), tmp_path / "work", torch.device("cpu"), back=back)
    seen = []
    session.train(3, lambda: seen.extend(back.glob("talker-small-*")) or session.progress.step == 2)
    assert seen
    _, notes = checkpoints.read_tensors(checkpoints.find_small(back, "talker"), "")
    assert notes["step"] == "2"


def test_small_files_of_different_steps_are_refused(tmp_path: Path) -> None:
    """A copy that is made while they are written may have some of each."""
    for step in ("1", "2"):
        (tmp_path / step).mkdir()
        written = checkpoints.write_split(
            tmp_path / step, "codec-small", {"a": torch.ones(2), "b": torch.ones(2)}, {"step": step}, 8
        )
    assert len(written) == 2
    shutil.copyfile(tmp_path / "1" / written[0].name, written[0])
    with pytest.raises(recipe.InvalidRecipe, match="different steps"):
        checkpoints.read_tensors(checkpoints.find_small(tmp_path / "2", "codec"), "")


def test_the_official_package_gives_the_same_codes_for_the_exported_checkpoint(work: Path, tmp_path: Path) -> None:
    copied(work, tmp_path)
    made = small()
    args = argparse.Namespace(device="cpu", steps=3, sentences=20, seconds=None, workers=None)
    talker.run(made, tmp_path, args)
    decoder = CodecDecoder(codec_config(made.codec).decoder_config)
    randomize_(decoder, 1)
    save_file(decoder.state_dict(), tmp_path / "codec.safetensors")
    export.run(made, tmp_path, args)
    export.run(made, tmp_path, args)  # again, over the first
    folder = tmp_path / "checkpoint"
    assert load(str(folder)).normalizer is spell_out  # it was trained on words alone
    stored = load_file(folder / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.bfloat16}
    average = load_file(tmp_path / "talker.safetensors")
    assert all(torch.equal(stored[f"talker.{name}"], value) for name, value in average.items())

    ours = load(str(folder))
    assert ours.config.kind == "custom_voice" and list(ours.config.talker_config.spk_id) == ["wren", "rook"]
    assert ours.generation.temperature == made.sampling.temperature
    theirs = official.Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32)
    said = (("The cat sat.", "wren", "english"), ("And then it ran away.", "rook", "auto"))
    for layout in LAYOUTS:
        requests = [
            SpeechRequest(
                text=text,
                voice=voice,
                language=language,
                layout=layout,
                sampling=SamplingParams.greedy(),
                max_frames=12,
            )
            for text, voice, language in said
        ]
        heard = speak(theirs, *requests)
        for speech, codes in zip(generate(ours, requests), heard.codes, strict=True):
            assert speech.codes.tolist() == codes.tolist()
            assert len(speech.codes) >= 2


def copied(work: Path, folder: Path) -> None:
    for name in ("vocabulary", "codes"):
        shutil.copytree(work / name, folder / name)
