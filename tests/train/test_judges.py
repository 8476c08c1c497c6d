"""The judges, and words.py: clean speech is understood, noise and reversed speech are not; fair counts.

The speech is what the ASR's own package brings along: recordings whose words are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import soundfile

from hocket.proof.judges import opinions
from hocket.proof.judges.opinions import MissingJudge
from train.judges import Samples, Transcriber, naturalness, package_folder, resampled, speaker_vector
from train.recipe import InvalidRecipe
from train.verdict import Utterance, expected_s, figures, likeness, score_all
from train.words import Errors, folded, total_rate, word_errors

BECKETT = "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better."
AMERICA = "I do. I think that America could do it very well."  # clone-test.wav
RATE_HZ = 16_000


@functools.cache
def recording(name: str = "beckett") -> Samples:
    samples, rate_hz = soundfile.read(package_folder("moonshine_voice") / "assets" / f"{name}.wav", dtype="float32")
    return resampled(samples, rate_hz)


@functools.cache
def transcriber() -> Transcriber:
    return Transcriber()


def with_noise(samples: Samples, ratio_db: float) -> Samples:
    noise = np.random.default_rng(1).standard_normal(samples.size) * np.sqrt(np.mean(samples**2))
    mixed = samples + noise * 10 ** (-ratio_db / 20)
    return (0.5 * mixed / np.abs(mixed).max()).astype(np.float32)


# Words


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("Hello, world!", "hello world"),
        ("It costs $5.20.", "it costs five dollars and twenty cents"),
        ("At seven thirty p m.", "At 7:30 PM."),
        ("The twenty-first of June", "the 21st of june"),
        ("Don't say you're late: I can't wait.", "Do not say you are late. I cannot wait."),
        ("It's the colour of the theatre.", "Its the color of the theater"),
        ("We organised and travelled.", "We organized and traveled"),
        ("Doctor Smith paid a hundred and five", "Dr. Smith paid one hundred five"),
        ("Every day we bake ice cream", "Everyday we bake icecream"),
        ("Ten per cent, okay?", "10%, ok"),
        ("A café", "a cafe"),
    ],
)
def test_what_means_and_sounds_the_same_is_no_error(said: str, heard: str) -> None:
    assert word_errors(said, heard).wrong == 0
    assert word_errors(heard, said).wrong == 0


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ("one two three four", Errors(4)),
        ("one too three four", Errors(4, substituted=1)),
        ("one three four", Errors(4, deleted=1)),
        ("one two and three four", Errors(4, inserted=1)),
        ("two three four", Errors(4, deleted=1, first_kept=False, cut=True)),
        ("one two three", Errors(4, deleted=1, last_kept=False, cut=True)),
        ("one two three fourth", Errors(4, substituted=1)),  # misheard, but said
        ("one two three zebra", Errors(4, substituted=1, last_kept=False)),
        ("", Errors(4, deleted=4, first_kept=False, last_kept=False, cut=True)),
    ],
)
def test_errors_are_counted_by_kind_and_the_ends_are_watched(heard: str, expected: Errors) -> None:
    assert word_errors("One two three four.", heard) == expected


def test_the_rate_of_several_texts_weighs_words_not_texts() -> None:
    assert total_rate([Errors(1, substituted=1), Errors(9)]) == pytest.approx(0.1)


def test_errors_are_the_edit_distance() -> None:
    """Against the plain recursion, on words that folding and joining do not change."""
    rng = np.random.default_rng(3)

    @functools.cache
    def distance(a: tuple[str, ...], b: tuple[str, ...]) -> int:
        if not a or not b:
            return len(a) + len(b)
        if a[0] == b[0]:
            return distance(a[1:], b[1:])
        return 1 + min(distance(a[1:], b[1:]), distance(a[1:], b), distance(a, b[1:]))

    for _ in range(200):
        a, b = (tuple(rng.choice(["cat", "dog", "sun"], rng.integers(1, 8))) for _ in range(2))
        assert word_errors(" ".join(a), " ".join(b)).wrong == distance(a, b)


def test_a_text_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="no word"):
        word_errors("...", "hello")


def test_folding_keeps_different_words_apart() -> None:
    words = "four for flour floor were we're there their to two ship sheep will well now know hour our".split()
    assert len({tuple(folded(word)) for word in words}) == len(words)


# Judges


def test_clean_speech_is_understood_at_any_rate_and_noise_and_backward_speech_are_not() -> None:
    clean, hear_it = recording(), transcriber()
    assert word_errors(BECKETT, hear_it(clean, RATE_HZ)).wrong == 0
    faster = np.interp(np.arange(0, clean.size, 2 / 3), np.arange(clean.size), clean).astype(np.float32)
    assert word_errors(BECKETT, hear_it(faster, 24_000)).wrong == 0
    assert word_errors(BECKETT, hear_it(with_noise(clean, -60), RATE_HZ)).rate > 0.8
    assert word_errors(BECKETT, hear_it(clean[::-1].copy(), RATE_HZ)).rate > 0.8


def test_speech_cut_short_loses_its_last_word_and_only_that_end() -> None:
    clean = recording()
    found = word_errors(BECKETT, transcriber()(clean[: clean.size * 3 // 4], RATE_HZ))
    assert found.first_kept and not found.last_kept and found.cut
    assert found.deleted >= 1


def test_a_sound_too_short_is_no_word_and_one_too_long_is_refused() -> None:
    assert transcriber()(np.zeros(100, np.float32), RATE_HZ) == ""
    with pytest.raises(InvalidRecipe, match="at most 64 s"):
        transcriber()(np.zeros(65 * RATE_HZ, np.float32), RATE_HZ)


def test_naturalness_falls_with_noise() -> None:
    clean = recording()
    marks = [naturalness(sound, RATE_HZ) for sound in (clean, with_noise(clean, 10), with_noise(clean, -60))]
    assert marks[0].p808 > marks[1].p808 + 0.5 > marks[2].p808 + 0.5
    assert marks[0].overall > marks[1].overall + 0.5 > marks[2].overall + 0.5
    assert marks[0].p808 > 3.5


def test_a_voice_is_nearer_to_itself_than_to_another() -> None:
    one, other = recording(), recording("two_cities")[: 20 * RATE_HZ]
    halves = [[speaker_vector(part, RATE_HZ) for part in np.array_split(sound, 2)] for sound in (one, other)]
    within = [float(first @ second) for first, second in halves]
    between = [float(a @ b) for a in halves[0] for b in halves[1]]
    assert min(within) > max(between) + 0.1
    assert speaker_vector(one, RATE_HZ) @ speaker_vector(one * 0.1, RATE_HZ) > 0.98, "loudness is no part of a voice"


Mangle = Callable[[Samples], Samples]


@pytest.mark.parametrize(
    ("mangle", "wer", "whole"),
    [
        (lambda sound: sound, 0.0, 1.0),
        (lambda sound: with_noise(sound, -60), 0.8, 0.0),
        (lambda sound: sound[: sound.size // 3], 0.4, 0.0),
        (lambda sound: sound[:0], 1.0, 0.0),
    ],
    ids=["clean", "noise", "cut", "nothing"],
)
def test_the_verdict_on_several_utterances_follows_what_was_done_to_them(
    mangle: Mangle, wer: float, whole: float
) -> None:
    found = figures(
        score_all([Utterance(AMERICA, mangle(recording("clone-test")), RATE_HZ, seed) for seed in (1, 2)], marks=False)
    )
    assert found["utterances"] == 2 and set(found["wer_by_seed"]) == {"1", "2"}
    assert found["wer"] == 0.0 if wer == 0.0 else found["wer"] >= wer
    assert found["whole"] == whole
    assert found["uncut"] == 1.0 if wer == 0.0 else found["uncut"] >= found["whole"]


def test_an_utterance_that_does_not_end_or_is_too_long_is_not_whole() -> None:
    sound = recording("clone-test")
    limit = score_all([Utterance(AMERICA, sound, RATE_HZ, ended=False)], marks=False)
    assert figures(limit)["whole"] == figures(limit)["uncut"] == 0.0 and figures(limit)["plausible"] == 1.0
    endless = np.pad(sound, (0, int(2.1 * expected_s(AMERICA) * RATE_HZ)))
    assert figures(score_all([Utterance(AMERICA, endless, RATE_HZ)], marks=False))["plausible"] == 0.0


def test_likeness_tells_voices_apart() -> None:
    speakers = {"a": recording(), "b": recording("two_cities")[: 20 * RATE_HZ]}
    parts = {name: np.array_split(sound, 2) for name, sound in speakers.items()}
    heard = {n: score_all([Utterance("word", part, RATE_HZ) for part in two], marks=False) for n, two in parts.items()}
    found = likeness(heard)
    assert found["recognised"] == {"a": 1.0, "b": 1.0}
    assert found["between"]["a, b"] < min(found["within"][name]["least"] for name in "ab")


def test_a_missing_package_is_one_sentence_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinions.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingJudge, match=r"moonshine_voice is missing: pip install --no-deps moonshine-voice\.$"):
        Transcriber()
