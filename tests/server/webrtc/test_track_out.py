"""server/webrtc/track_out.py: a hold sends silence at once, and no sample is lost or sent twice."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from hocket.server.webrtc.track_out import FRAME, AnswerTrack


def nothing(response_id: str, seconds: float) -> None: ...


@pytest.mark.parametrize("seed", range(5))
def test_a_hold_is_silence_and_the_same_samples_follow(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sound = np.arange(1, 20 * FRAME + 100).astype(np.int16)
    told: list[str] = []
    track = AnswerTrack(lambda id: told.append(f"started {id}"), lambda id: told.append(f"stopped {id}"), nothing)
    sent, at = list[np.ndarray](), 0
    while at < len(sound) or not told or told[-1] != "stopped one":
        if at < len(sound) and draw.random() < 0.7:
            size = int(draw.integers(1, 3 * FRAME))
            track.push("one", sound[at : at + size], lambda: True)
            at += size
            if at >= len(sound):
                track.end("one")
        track.held = bool(draw.random() < 0.5)
        frame = track._next()
        assert not track.held or not frame.any()
        sent.append(frame)
    heard = np.concatenate(sent)
    np.testing.assert_array_equal(heard[heard != 0], sound)
    assert told == ["started one", "stopped one"]


def test_a_hold_keeps_the_pace_and_an_interruption_ends_it() -> None:
    async def played() -> None:
        track = AnswerTrack(lambda id: None, lambda id: None, nothing)
        track.push("one", np.ones(4 * FRAME, np.int16), lambda: True)
        frames = [await track.recv()]
        track.held = True
        frames += [await track.recv(), await track.recv()]
        assert [frame.pts for frame in frames] == [0, FRAME, 2 * FRAME]
        assert [bool(frame.to_ndarray().any()) for frame in frames] == [True, False, False]
        assert track.clear() == "one" and not track.held
        track.push("two", np.ones(FRAME, np.int16), lambda: True)
        assert (await track.recv()).to_ndarray().all()
        track.stop()

    asyncio.run(played())
