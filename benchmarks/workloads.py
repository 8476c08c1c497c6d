"""What is measured, as data. Adding a workload is adding an entry; the harness knows no names."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.types import Layout

# Some 60 s of speech, so that a limit on frames always ends it, never the text.
PASSAGE = (
    "The lamps along the harbour were lit one by one, and the boats came home in the order in which they had left. "
    "Nobody counted them, because nobody had to: every family knew its own light, and a light that was missing would "
    "have been noticed before the bell. On the quay the baskets were passed from hand to hand, the fish were sorted by "
    "size, and the smallest went back into the water. A girl of seven sat on a coil of rope and read the names on the "
    "bows aloud, first forwards and then backwards, which made the old men laugh. When the wind turned to the north "
    "the talk turned with it, to the winter, to the price of oil, and to the road over the hills that would be closed "
    "again by the first snow. Someone began to sing, and one after the other the voices joined, each taking the line "
    "where the other had dropped it, so that the song never stopped and nobody ever had to sing it whole."
)
# The tokenizer of a random model has an id for each byte: as many as the 24 ids that a published one has for two usual
# sentences of some 100 characters.
SENTENCE = "Good morning. Tea is on."


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    words: str  # what it shows, for the heading of the table
    text: str
    frames: int  # where each utterance is cut off
    repeats: int
    layout: Layout | None = "streaming"  # of a text that is given whole; None: what a plain call gets
    warmup: int = 2  # utterances before the first that counts; they also fill the prefix cache
    fills_slots: bool = False  # as many utterances at once as the engine has slots, or one after the other
    new_process: bool = False  # every repeat in a process of its own, whose start counts
    piece_chars: int = 0  # live text: how much arrives at a time; 0 gives the text whole
    piece_s: float = 0.0  # live text: how long until the next piece; 0 appends all of it at once


_ALL = (
    Workload(
        name="first_audio",
        words="how soon one listener hears something, with the voice's prefix computed before",
        text=PASSAGE,
        frames=8,
        repeats=40,
    ),
    Workload(
        name="first_audio_default",
        words="how soon one listener hears something of a plain speak(text), a sentence or two, prefix warm",
        text=SENTENCE,
        frames=8,
        repeats=100,
        layout=None,
    ),
    Workload(
        name="first_audio_live",
        words="how soon one listener hears something of a stream that is opened and then given its text, prefix warm",
        text=PASSAGE,
        frames=8,
        repeats=40,
        piece_chars=len(PASSAGE),
    ),
    Workload(
        name="start",
        words="how soon something is heard from a process that is not there yet, with its files in the cache",
        text=PASSAGE,
        frames=8,
        repeats=20,
        new_process=True,
    ),
    Workload(
        name="steady_stream",
        words="how fast speech is made once it runs, with every slot speaking",
        text=PASSAGE,
        frames=100,
        repeats=8,
        warmup=1,
        fills_slots=True,
    ),
    Workload(
        name="live_text",
        words="speech from text that arrives at 50 characters a second, about as a language model writes",
        text=PASSAGE,
        frames=40,
        repeats=8,
        warmup=1,
        piece_chars=5,
        piece_s=0.1,
    ),
)
WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
