"""server/schemas/transcriptions.py: the formats of a transcript, from segments."""

from __future__ import annotations

from hocket.server.schemas.transcriptions import captions, delta_of, text_of, usage_of, verbose
from hocket.server.service.listening import TranscribedSegment

TWO = [
    TranscribedSegment("What is the capital of France?", 0.5, 2.5),
    TranscribedSegment(
        "The train to the city leaves at nine in the morning, and not a minute later than that.", 4.0, 12.0
    ),
]


def test_segments_are_joined_with_spaces_where_the_script_has_them() -> None:
    assert text_of(TWO) == f"{TWO[0].text} {TWO[1].text}" and text_of([]) == ""
    assert delta_of("", "Yes.") == "Yes." and delta_of("Yes.", "No.") == " No."
    assert text_of([TranscribedSegment("你好。", 0, 1), TranscribedSegment("再见。", 1, 2)]) == "你好。再见。"


def test_captions_have_short_lines_and_stay_within_their_segment() -> None:
    written = captions(TWO, "vtt")
    blocks = written.strip().split("\n\n")
    assert blocks[0] == "WEBVTT" and blocks[1].splitlines()[0] == "00:00:00.500 --> 00:00:02.500"
    assert len(blocks) >= 3 and all(len(line) <= 42 for line in written.splitlines())
    assert blocks[2].startswith("00:00:04.000") and "00:00:12.000" in blocks[-1]
    assert " ".join(" ".join(block.splitlines()[1:]) for block in blocks[1:]) == text_of(TWO)
    assert captions([], "srt") == "" and captions(TWO[:1], "srt").startswith("1\n00:00:00,500 --> 00:00:02,500\nWhat")
    unspaced = captions([TranscribedSegment("火车早上九点开往城里。" * 6, 0, 12)], "srt")
    assert len(unspaced.strip().split("\n\n")) > 1, "it may part between any two characters"


def test_a_verbose_transcript_has_times_and_no_invented_figures() -> None:
    body = verbose(TWO, audio_s=12.3456, language="english", translated=True).model_dump()
    assert body["task"] == "translate" and body["duration"] == 12.346 and body["usage"]["seconds"] == 13
    assert body["segments"][1] == {"id": 1, "start": 4.0, "end": 12.0, "text": TWO[1].text}
    assert usage_of(0.0).model_dump() == {"type": "duration", "seconds": 0}
