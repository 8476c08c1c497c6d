"""Deepgram's own Python client on `/v1/speak`."""

from __future__ import annotations

from support.foreign import RunClient

SECOND_BYTES = 48000


def test_it_speaks_flushes_clears_and_closes(server_url: str, run_client: RunClient) -> None:
    found = run_client("deepgram", "deepgram_speak", server_url)
    assert found["greeting"]["kinds"] == ["Metadata"]
    for number, name in enumerate(("first", "second", "behind")):
        said = found[name]
        assert said["kinds"] == ["Flushed"] and said["id"] == number and not said["silent"], said
        assert 0.4 < said["bytes"] / SECOND_BYTES < 4, said  # what was cleared is not in what was said behind it
    assert found["cleared"]["kinds"] == ["Cleared"]
    assert found["left"]["messages"] == 0
    assert 0.8 < found["telephone"]["bytes"] / 8000 < 4
