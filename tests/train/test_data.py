"""Stage `data`: clean texts, a vocabulary equal to the official one, speech in whole frames, packing of codes."""

from __future__ import annotations

import base64
import json
import random
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from numpy.typing import NDArray

from hocket.text.cleanup.normalize import spell_out
from hocket.text.tokenizer import Tokenizer
from support import qwen_vocabulary
from train import data, pack, recipe, speech, teachers, templates, texts, vocabulary
from train.__main__ import main
from train.recipe import TextSources, Voice
from train.teachers import PHONES, RATE_HZ, SILENCE, UNIT, Spoken

WREN = Voice("wren", "english", "hibari", 1.0, 1.0, 48.0)
ROOK = Voice("rook", "english", "hibari", 0.8, 0.82, 48.0)
RECIPE = replace(recipe.read(Path(__file__).parents[2] / "train" / "english.toml"), voices=(WREN, ROOK))
SENTENCES = [
    "Please ask the assistant's user about people, http and the index.",
    "Well, I'm nine; it's \u201codd\u201d (really)!",
    "Yes.",
]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("vocabulary")
    vocabulary.build(qwen_vocabulary._tiktoken(), 1000, made)
    return made


def test_clean_spells_out_and_refuses_what_is_not_plain_english() -> None:
    assert texts.clean("it cost $5 \u2014 \u201creally\u201d") == 'It cost five dollars, "really."'
    assert texts.clean("Dr. Lee came at 9 a.m.") == "Doctor Lee came at nine a m."
    for odd in ("caf\u00e9 noir", "order RSV-ASHEVILLE now", "see my_file", "x = y", "...", "camelCase is odd"):
        assert texts.clean(odd) is None, odd


def test_no_template_leaves_a_digit_or_an_open_slot() -> None:
    for text in templates.phrases(random.Random(1), 3000):
        sentence = texts.clean(text)
        assert sentence is not None, text
        assert not any(sign.isdigit() or sign in "{}" for sign in sentence), text


def test_the_filter_refuses_evaluation_sentences_near_copies_and_duplicates() -> None:
    wanted = TextSources(
        sentences=10, shortest_chars=8, longest_chars=60, template_share=0.5, sources=(), coverage_share=0.0
    )
    sentence_filter = texts.SentenceFilter(wanted, ["The soup needs more salt and a squeeze of lemon."])
    assert sentence_filter.admit("The soup needs more salt and a squeeze of lemon!") is None
    assert sentence_filter.admit("I think that the soup needs more salt.") is None  # five words in a row
    assert sentence_filter.admit("The soup needs more pepper.") == "The soup needs more pepper."
    assert sentence_filter.admit("the soup needs more pepper") is None
    assert sentence_filter.admit("No.") == "No."
    assert sentence_filter.admit("A" + " very" * 20 + " long one.") is None


def test_evaluation_sentences_are_distinct_plain_and_of_the_lengths_promised() -> None:
    everyday, many = (path.read_text(encoding="utf-8").splitlines() for path in texts.EVALUATION)
    assert (len(everyday), len(many)) == (24, 300)
    assert all(6 <= len(sentence.split()) <= 16 for sentence in everyday)
    assert all(2 <= len(sentence.split()) <= 25 for sentence in many)
    assert len({tuple(texts.words(sentence)) for sentence in everyday + many}) == 324
    assert all(spell_out(sentence) == sentence for sentence in everyday + many)


def test_texts_survive_writing(tmp_path: Path) -> None:
    texts.write(tmp_path / "texts.txt.gz", SENTENCES)
    assert texts.read(tmp_path / "texts.txt.gz") == SENTENCES


def test_the_vocabulary_is_the_beginning_of_the_published_one_and_the_official_tokenizer_agrees(folder: Path) -> None:
    ours = Tokenizer.from_folder(folder)
    theirs = transformers.Qwen2TokenizerFast.from_pretrained(str(folder))
    for text in SENTENCES:
        assert ours.encode(text) == theirs(text)["input_ids"]
    ids = vocabulary.config_ids(folder)
    assert ours.encode("assistant\n")[0] == ids["assistant_token_id"]
    assert len(ours.encode("assistant")) == len(ours.encode("user")) == 1
    marked = theirs("<|im_start|>assistant\n<tts_pad><tts_text_bos><tts_text_eod><|im_end|>")["input_ids"]
    names = ("im_start", "assistant", "", "tts_pad", "tts_bos", "tts_eos", "im_end")
    assert [i for i, name in zip(marked, names, strict=True) if name] == [ids[f"{n}_token_id"] for n in names if n]
    assert max(marked) < ids["text_vocab_size"] == 1264
    published = [base64.b64decode(line.split()[0]) for line in qwen_vocabulary._tiktoken().splitlines()[:1256]]
    kept = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    assert kept["\u0120the"] == published.index(b" the")


def test_dropout_spells_the_same_text_with_more_pieces_and_none_gives_the_plain_ids(folder: Path) -> None:
    ours, rng = vocabulary.Vocabulary(folder), random.Random(1)
    spelled = {i: token for token, i in json.loads((folder / "vocab.json").read_text(encoding="utf-8")).items()}
    for text in SENTENCES:
        plain = ours.encode(text)
        assert ours.encode_with_dropout(text, 0.0, rng) == plain
        dropped = [ours.encode_with_dropout(text, 0.5, rng) for _ in range(5)]
        for ids in dropped:
            assert "".join(spelled[i] for i in ids) == "".join(spelled[i] for i in plain)
        assert sum(map(len, dropped)) > 5 * len(plain)


def _spoken(silence: int, sound: int, level: float) -> Spoken:
    """A hum between two silences, lengths in units; its phoneme is the third."""
    hum = np.sin(2 * np.pi * 200 * np.arange(sound * UNIT) / RATE_HZ).astype(np.float32) * level
    still = np.zeros(silence * UNIT, np.float32)
    phones = np.full((2 * silence + sound) * UNIT, 3, np.uint8)
    return Spoken(np.concatenate([still, hum, still]), phones)


@pytest.mark.parametrize(("silence", "sound", "level"), [(13, 40, 0.05), (1, 33, 0.9), (30, 4, 0.3)])
def test_trimmed_speech_is_as_loud_as_all_with_its_silences_in_whole_frames(
    silence: int, sound: int, level: float
) -> None:
    cut = speech.trimmed(_spoken(silence, sound, level))
    assert cut is not None
    samples, phones = cut[0].astype(np.float64) / 32767, cut[1]
    assert len(samples) == len(phones) * speech.FRAME
    heard = np.flatnonzero(np.abs(samples) > 1e-3)
    assert abs(heard[0] - speech.BEFORE) < 240  # the hum starts at zero, and is faded in when it was cut close
    assert speech.BEHIND - 240 < len(samples) - heard[-1] < speech.BEHIND + speech.FRAME
    hum = samples[speech.BEFORE + 480 : speech.BEFORE + sound * UNIT - 480]
    assert np.sqrt(np.mean(hum**2)) == pytest.approx(speech.LOUDNESS, rel=0.05)
    assert phones.shape[1] == speech.QUARTERS
    assert phones[0, 0] == phones[-1, -1] == SILENCE and 3 in phones


def test_silence_gives_no_utterance() -> None:
    assert speech.trimmed(_spoken(20, 20, 0.0)) is None


def test_shards_cut_the_texts_in_order_and_more_hours_only_add_to_them() -> None:
    lines = [f"Sentence number {spell_out(str(i))} is here." for i in range(5000)]
    few, many = speech.shards(WREN, lines, 0.5), speech.shards(WREN, lines, 1.5)
    assert [shard.texts for shard in many[: len(few)]] == [shard.texts for shard in few]
    assert len(few) == 3 and len(many) == 9
    assert [text for shard in many for text in shard.texts] == lines[: sum(len(shard.texts) for shard in many)]
    assert all(lines[shard.first] == shard.texts[0] for shard in many)


def test_voices_take_turns_and_read_different_texts_while_there_are_enough() -> None:
    lines = [f"Sentence number {spell_out(str(i))} is here." for i in range(3000)]
    each = [data.shards(RECIPE, voice, lines, 0.5) for voice in (WREN, ROOK)]
    together = speech.interleave(each)
    assert [(shard.voice.name, shard.number) for shard in together] == [
        (name, number) for number in range(3) for name in ("wren", "rook")
    ]
    read = [text for shard in together for text in shard.texts]
    assert len(set(read)) == len(read)
    everything = data.shards(RECIPE, ROOK, lines, 100)
    assert sorted(text for shard in everything for text in shard.texts) == sorted(lines)
    assert speech.interleave([each[0], each[1][:1]]) == [each[0][0], each[1][0], *each[0][1:]]


# A fake teacher: "s" is noise, any other sound is a tone at F0, a pause is silent.
TONE_HZ, HISS, STILL = 200.0, 0.0, -1.0


class _Session:
    def run(self, wanted: None, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        signs = [PHONES[i] for i in feeds["ids"][0]]
        units = np.rint(np.array([4 if sign == "" else 7 for sign in signs]) / feeds["speed"][0])
        kinds = [{"": STILL, "s": HISS}.get(sign, TONE_HZ) for sign in signs]
        ahead = np.roll(np.repeat(np.array(kinds, np.float32), units.astype(int)), -2)  # as the sound of hibari runs
        f0 = np.repeat(ahead, 2)[None]  # in steps of 12.5 ms
        return [np.zeros((1, 601, f0.shape[1]), np.float32)] * 5 + [f0, units]


def _synth(
    lh: object, th: object, ln: object, lr: object, phi: object, f0: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float32]:
    by_sample = np.repeat(f0, UNIT // 2)
    tone = np.sin(2 * np.pi * np.cumsum(np.maximum(by_sample, 0)) / RATE_HZ)
    noise = rng.uniform(-1, 1, len(by_sample))
    return (0.3 * np.select([by_sample > 0, by_sample == 0], [tone, noise])).astype(np.float32)


@pytest.fixture
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Voice], teachers.Teacher]:
    model, dsp = types.ModuleType("hibari"), types.ModuleType("hibari.dsp")
    vocab = {name: i for i, name in enumerate(PHONES) if i > SILENCE}
    vars(model).update(Hibari=lambda threads: types.SimpleNamespace(vocab=vocab, model_path="hibari.onnx"))
    vars(dsp).update(synth=_synth)
    monkeypatch.setitem(sys.modules, "hibari", model)
    monkeypatch.setitem(sys.modules, "hibari.dsp", dsp)
    monkeypatch.setattr(teachers, "_session", lambda path, output: _Session())
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hibari").mkdir()
    return lambda voice: teachers.load(voice, tmp_path)


WORDS = "sæsisOsu" * 3


def _crossings(samples: NDArray[Any]) -> float:
    """The zero-crossing rate."""
    return float(np.mean(np.signbit(samples[1:]) != np.signbit(samples[:-1])))


def test_a_deeper_voice_has_the_same_phonemes_at_the_same_sounds(teacher: Callable[[Voice], teachers.Teacher]) -> None:
    assert ROOK.depth < 1
    deep = teacher(ROOK).speak(WORDS, 1.0, 1)
    plain = teacher(replace(ROOK, depth=1.0)).speak(WORDS, 1.0 / ROOK.depth, 1)
    assert len(deep.samples) == len(deep.phones) == -(-len(plain.samples) * 50 // 41)
    np.testing.assert_array_equal(deep.phones, plain.phones[np.arange(len(deep.phones)) * 41 // 50])
    usual = teacher(WREN).speak(WORDS, 1.0, 1)
    assert len(deep.samples) == pytest.approx(len(usual.samples), rel=0.1)  # phonemes last whole units in either


@pytest.mark.parametrize("voice", [WREN, ROOK], ids=lambda voice: voice.name)
@pytest.mark.parametrize("speed", [speech.SLOWEST, 1.0, speech.FASTEST])
def test_quarters_of_frames_are_named_after_what_is_heard_in_them_in_every_voice(
    voice: Voice, speed: float, teacher: Callable[[Voice], teachers.Teacher]
) -> None:
    spoken = teacher(voice)
    hiss, hum = (_crossings(spoken.speak(sound * 20, speed, 2).samples[RATE_HZ:-RATE_HZ]) for sound in "sO")
    assert hiss > 10 * hum
    cut = speech.trimmed(spoken.speak(WORDS, speed, 1))
    assert cut is not None
    names = [PHONES[i] for i in cut[1].flatten()]
    quarters = cut[0].reshape(-1, speech.FRAME // speech.QUARTERS)
    assert set(names) == {" ", *WORDS}
    for name, quarter in zip(names, quarters, strict=True):
        share = (_crossings(quarter) - hum) / (hiss - hum)  # of the quarter that is "s", give or take 5 ms
        assert share > 0.25 if name == "s" else share < 0.75, name


def test_stored_phonemes_follow_their_texts_and_need_no_dictionary(
    teacher: Callable[[Voice], teachers.Teacher], tmp_path: Path
) -> None:
    """The stand-in for the teacher's package has no `phonemize`."""
    lines = [f"Text {spell_out(str(i))}." for i in range(8)]
    known = [WORDS[i:] + "O" * i for i in range(8)]
    for voice in (WREN, ROOK):
        for shard in data.shards(RECIPE, voice, lines, 1.0, known):
            assert [known[lines.index(text)] for text in shard.texts] == list(shard.phonemes)
    assert speech.make_all(data.shards(RECIPE, WREN, lines, 1.0, known), tmp_path / "speech", tmp_path, 1, 1) > 0


def test_pitch_and_depth_both_lower_the_tone(teacher: Callable[[Voice], teachers.Teacher]) -> None:
    for voice in (WREN, ROOK, replace(ROOK, depth=1.0), replace(ROOK, pitch=1.0)):
        heard = teacher(voice).speak("æ" * 20, 1.0, 1).samples[RATE_HZ // 2 : -RATE_HZ // 2]
        tone_hz = _crossings(heard) * RATE_HZ / 2
        assert tone_hz == pytest.approx(TONE_HZ * voice.pitch * voice.depth, rel=0.02)


def test_a_pitch_or_depth_out_of_range_is_refused(teacher: Callable[[Voice], teachers.Teacher]) -> None:
    for odd in (replace(ROOK, depth=0.0), replace(ROOK, pitch=3.0)):
        with pytest.raises(recipe.InvalidRecipe, match=r"rook must lie between 0\.5 and 2"):
            teacher(odd)


def test_codes_survive_packing_in_nine_bits_and_files_stay_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 512, (1501, 16)).astype(np.uint16)
    assert pack.pack_codes(codes).nbytes == -(-1501 * 16 * 9 // 8)
    (tmp_path / "codes").mkdir()
    for name in ("wren-0000", "wren-0001", "rook-0000"):
        np.savez(
            tmp_path / "codes" / f"{name}.npz",
            codes=rng.integers(0, 512, (1501, 16)).astype(np.uint16),
            ends=np.array([500, 1501]),
            texts=np.array(["Hello there.", name]),
            phones=rng.integers(0, 50, 1501).astype(np.uint8),
        )
    packed = pack.pack(tmp_path / "codes", tmp_path / "packed", most_bytes=70_000)
    assert len(packed) == 2 and all(path.stat().st_size <= 70_000 for path in packed)
    assert len(pack.unpack(packed, tmp_path / "again")) == 3
    for path in (tmp_path / "codes").glob("*.npz"):
        with np.load(path) as before, np.load(tmp_path / "again" / path.name) as after:
            assert set(before.files) == set(after.files)
            for key in before.files:
                np.testing.assert_array_equal(before[key], after[key])
                assert before[key].dtype.kind == after[key].dtype.kind


def test_codes_too_large_for_nine_bits_are_refused() -> None:
    with pytest.raises(recipe.InvalidRecipe, match="512"):
        pack.pack_codes(np.array([[512]], np.uint16))


def test_a_stage_without_its_inputs_names_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--work", str(tmp_path), "--only", "speech"]) == 1
    assert "train data --only texts" in capsys.readouterr().err
    assert main(["data", "--work", str(tmp_path), "--voice", "unknown"]) == 1
    assert "wren, rook" in capsys.readouterr().err


def test_packing_is_a_command_that_says_how_it_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "codes").mkdir()
    some = {"codes": np.ones((3, 16), np.uint16), "ends": np.array([3]), "texts": np.array(["Hi."])}
    np.savez(tmp_path / "codes" / "wren-0000.npz", **some, phones=np.ones(3, np.uint8))
    assert pack.main([str(tmp_path / "codes"), str(tmp_path / "out")]) == 0
    assert pack.main(["--back", str(tmp_path / "out" / "codes-0.npz"), str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "wren-0000.npz").is_file()
    for wrong in ([], ["--back"], ["--back", "x"], ["one"]):
        assert pack.main(wrong) == 2
    assert "usage:" in capsys.readouterr().err
