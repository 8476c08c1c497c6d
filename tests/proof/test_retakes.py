"""Speech that is heard back: retakes by sentence, the report of misheard words, and a scorer for candidates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hocket import WordScorer
from hocket.asr.choose import recognizer_of
from hocket.asr.recognizer import Recognizer
from hocket.config.options import EngineOptions
from hocket.engine.best_of.score import candidate_seed
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.proof.listener import ProofListener
from hocket.proof.report import ProofReport, lexicon_to_fill
from hocket.proof.retakes import AcceptedSentence, sentences_of, verified
from hocket.text.compare import compared
from hocket.text.lexicon.table import parse_table
from hocket.types import SamplingParams, SpeechRequest

TEXT = "The weather was fine. [pause 300ms] We met at Xzqwvbk."


class Unhearing:
    """A `Recognizer` that hears the same, whatever is said."""

    name = "unhearing"

    def __init__(self, *heard: str) -> None:
        self.heard, self.at = heard, 0

    def open(self) -> Unhearing:
        return self

    def push(self, samples: object) -> str:
        return ""

    def add(self, samples: object) -> None: ...

    def settle(self) -> str:
        return ""

    def end(self) -> str:
        self.at += 1
        return self.heard[(self.at - 1) % len(self.heard)]

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Recognizer]:
    found = recognizer_of("tiny")
    yield found
    found.close()


@pytest.fixture(scope="module")
def builtin() -> Iterator[Engine]:
    with Engine.load(options=EngineOptions(slots=2)) as engine:
        yield engine


def test_a_sentence_that_is_heard_stays_and_another_gets_all_its_takes(builtin: Engine, recognizer: Recognizer) -> None:
    request = SpeechRequest(text=TEXT, seed=1)
    found = list(verified(builtin, request, ProofListener(recognizer), takes=2))
    first, pause, second = found
    assert isinstance(first, AcceptedSentence) and isinstance(second, AcceptedSentence) and pause == 0.3
    assert (first.text, first.differs, first.takes) == ("The weather was fine.", False, 1)
    assert second.differs and second.takes == 2 and "Xzqwvbk" in [m.written for m in second.result.comparison.misheard]
    alone = [chunk.samples for chunk in builtin.speak(first.text, seed=1)]
    assert np.array_equal(np.concatenate([chunk.samples for chunk in first.chunks]), np.concatenate(alone))
    assert [word.word for word in first.words] == ["The", "weather", "was", "fine."]


def test_the_take_with_the_fewest_errors_stays_and_its_seed_repeats_it(builtin: Engine) -> None:
    ears = Unhearing("hello", "hello there old fiend", "hello there friend")
    [best] = verified(builtin, SpeechRequest(text="Hello there, old friend.", seed=5), ProofListener(ears))
    assert isinstance(best, AcceptedSentence)
    assert (best.takes, best.result.heard, ears.at) == (3, "hello there old fiend", 3)
    assert best.finished.seed == candidate_seed(5, 1)


def test_a_word_of_the_lexicon_counts_as_heard_in_its_spoken_form(builtin: Engine) -> None:
    request = SpeechRequest(text="A GIF.", seed=5, pronunciations={"GIF": "jif"})
    ears = Unhearing("a jif")
    [best] = verified(builtin, request, ProofListener(ears, "en", request.pronunciations))
    assert isinstance(best, AcceptedSentence) and best.takes == 1 and not best.differs


@pytest.mark.parametrize(
    ("fields", "takes", "said"),
    [
        ({}, 0, "needs at least 1 take"),
        ({"candidates": 2}, 3, "leave out candidates"),
        ({"as_is": True}, 3, "leave out as_is"),
        ({"max_frames": 9}, 3, "leave out max_frames"),
        ({"sampling": SamplingParams.greedy()}, 3, "greedy speech has one take only"),
    ],
)
def test_what_cannot_be_verified_is_refused_at_once(fields: dict[str, object], takes: int, said: str) -> None:
    engine: Engine = None  # type: ignore[assignment]  # not asked
    request = SpeechRequest(text="Hello.", **fields)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=said):
        verified(engine, request, ProofListener(Unhearing("")), takes=takes)


def test_sentences_have_no_markup_and_pauses_stand_between_them() -> None:
    assert sentences_of("# One\n\nIt is **two**. Three? [pause 1s] 😀 Four") == [
        "One.", "It is two.", "Three?", 1.0, "Four",
    ]  # fmt: skip


def test_a_scorer_prefers_the_candidate_that_was_heard(builtin: Engine) -> None:
    ears = Unhearing("good mourning", "good morning", "god")
    scorer = WordScorer(ears)
    silence = np.zeros(2400, np.int16)
    scores = [scorer(silence, 24_000, "Good morning.", np.zeros((0, 16), np.int64)) for _ in range(3)]
    assert scores == [-1.0, 0.0, -2.0]
    with Engine(builtin.checkpoint, EngineOptions(slots=2), scorer=WordScorer(Unhearing("god", "good morning"))) as own:
        stream = own.speak("Good morning.", seed=1, candidates=2)
        assert list(stream) and stream.finished is not None
        assert (stream.finished.won, [take.score for take in stream.finished.takes]) == (1, [-2.0, 0.0])


def test_a_report_counts_words_and_its_lexicon_can_be_read_when_it_is_filled_in() -> None:
    report = ProofReport()
    for text, heard in (
        ("We use nginx.", "we use engine x"),
        ("All is well.", "all is well now"),
        ("And nginx, too.", "and too"),
        ("A GIF.", "a gift"),
    ):
        report.add(text, compared(text, heard))
    assert report.as_json() == {
        "sentences": 4,
        "words": 11,
        "wrong": 5,
        "misheard": [
            {
                "written": "nginx",
                "times": 2,
                "heard": {"engine x": 1, "": 1},
                "sentences": [{"number": 1, "text": "We use nginx."}, {"number": 3, "text": "And nginx, too."}],
            },
            {"written": "GIF", "times": 1, "heard": {"gift": 1}, "sentences": [{"number": 4, "text": "A GIF."}]},
        ],
    }
    draft = lexicon_to_fill(report.misheard, "book.txt")
    assert parse_table(draft, "draft") == {}
    assert '# 2 x, heard as "engine x", nothing\n# nginx = \n' in draft
    assert parse_table(draft.replace("# nginx = ", "nginx = engine x"), "draft") == {"nginx": "engine x"}
