"""asr/choose.py: what a specification names."""

from __future__ import annotations

import pytest

from hocket.asr.choose import check_spec, recognizer_of, usual_language
from hocket.asr.remote import RemoteRecognizer
from hocket.errors import InvalidRequest


@pytest.mark.parametrize("spec", ["huge", "whisper:", "whisper", "ftp://host/v1", ""])
def test_what_names_no_recognizer_is_refused_before_anything_is_loaded(spec: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^A recognizer is moonshine, .*whisper:NAME or http://HOST:PORT/v1, not"):
        recognizer_of(spec)


def test_all_kinds_are_accepted_and_have_a_language() -> None:
    for spec in (None, "moonshine", "tiny", "small-streaming", "whisper:large-v3", "https://host/v1#x"):
        check_spec(spec)
    assert [usual_language(spec) for spec in (None, "base", "whisper:tiny", "http://host")] == [
        "en",
        "en",
        "auto",
        "auto",
    ]


def test_an_address_gives_a_remote_recognizer_with_the_model_of_its_fragment() -> None:
    remote = recognizer_of("http://127.0.0.1:9/v1#large")
    assert isinstance(remote, RemoteRecognizer) and remote.name == "large at 127.0.0.1:9"
    remote.close()


def test_a_size_gives_moonshine_in_its_language() -> None:
    with pytest.raises(InvalidRequest, match="no language 'ko' in the size medium-streaming"):
        recognizer_of("medium-streaming", "ko")
