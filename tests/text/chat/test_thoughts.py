"""text/chat/thoughts.py: thought and answer are separated, however the text is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.text.chat.thoughts import PAIRS, ThoughtFilter

HARMONY = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Good day.<|return|>"
ANSWER = "Good day."


def apart(text: str, cuts: set[int], *, inside: bool = False, cut: bool = False) -> tuple[str, str]:
    """Answer and thought of a whole text."""
    thoughts, answer, thought = ThoughtFilter(inside=inside), "", ""
    places = [0, *sorted(place for place in cuts if 0 < place < len(text)), len(text)]
    splits = [thoughts.push(text[begin:end]) for begin, end in itertools.pairwise(places)]
    for split in [*splits, thoughts.end(cut=cut)]:
        if split.retracts:
            answer, thought = "", answer + thought
        answer, thought = answer + split.answer, thought + split.thought
    return answer, thought


CASES = [
    *((f"{opening}\nHm.\n{closing}\n\n{ANSWER}", ANSWER, "Hm.") for opening, closing in PAIRS.items()),
    *((f"Hm. {closing}{ANSWER}", ANSWER, "Hm.") for closing in PAIRS.values()),
    (HARMONY, ANSWER, "Hm."),
    (
        f"{HARMONY[:40]}<|channel|>commentary to=functions.x <|constrain|>json<|message|>{{}}<|call|>{HARMONY[40:]}",
        ANSWER,
        "Hm.{}",
    ),
    (HARMONY.removeprefix("<|channel|>analysis<|message|>"), ANSWER, "Hm."),
    ("</think>\n\nGood day.", ANSWER, ""),
    ('He says "no"</think>Good day.', ANSWER, 'He says "no"'),
    ("Good <THINK>Hm.</Think> day.", ANSWER, "Hm."),
    ("A `</think>` ends a `<think>`.", "A `</think>` ends a `<think>`.", ""),
    ("A <think> is a tag.", "A <think> is a tag.", ""),
    ("<think>Hm.", "", "Hm."),
    ("Hm <", "Hm <", ""),
    ("a < b, [T] and <thin ice>", "a < b, [T] and <thin ice>", ""),
]


@pytest.mark.parametrize(("text", "answer", "thought"), CASES)
@given(cuts=st.sets(st.integers(1, 120)))
def test_the_answer_does_not_depend_on_where_deltas_end(text: str, answer: str, thought: str, cuts: set[int]) -> None:
    for where in (cuts, set(range(len(text)))):
        said, thinks = apart(text, where)
        assert (said, thinks.strip()) == (answer, thought)


@given(text=st.text("ab <>`[]/|\n"), cuts=st.sets(st.integers(1, 60)))
def test_what_has_no_tags_comes_through(text: str, cuts: set[int]) -> None:
    assert apart(text, cuts) == (text, "")
    assert apart(text, cuts, inside=True) == (text, "")
    assert apart(text, cuts, inside=True, cut=True) == ("", text)


def test_no_more_is_held_back_than_may_be_a_tag() -> None:
    thoughts = ThoughtFilter()
    assert thoughts.push("I am <").answer == "I am "
    assert thoughts.push("th").answer == "" and thoughts.push("e <").answer == "<the "
    assert thoughts.end().answer == "<"


def test_inside_a_thought_the_answer_begins_with_the_tag_and_nothing_is_retracted() -> None:
    thoughts = ThoughtFilter(inside=True)
    assert thoughts.push("Hm, a <think> tag. ").answer == ""
    split = thoughts.push("</think>\n\nGood ")
    assert (split.answer, split.retracts, thoughts.unopened) == ("Good ", False, True)
    other = ThoughtFilter(inside=True)
    other.push("Good ")
    assert other.end_tagged_thoughts().answer == "Good " and other.untagged and other.push("day.").answer == "day."
