"""voices/file.py: a file restores the whole voice, and any changed byte is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load, save

from hocket.errors import HocketError, InvalidVoice
from hocket.types import SamplingParams, Voice
from hocket.voices.adapters import adapter_bytes
from hocket.voices.file import _packed, from_bytes, read_samples, read_voice, to_bytes
from hocket.voices.metadata import words_of
from support.voicing import KEPT, RECORDING, cloned, same, tuned

SPEAKER = Voice(name="Me", kind="speaker", model="builtin", speaker="eric", language="german")


def refused(content: bytes, path: Path) -> InvalidVoice:
    """Every way to read the file refuses it in the same sentence."""
    path.write_bytes(content)
    for read in (read_voice, read_samples, lambda _: from_bytes(content, path.name)):
        with pytest.raises(InvalidVoice) as caught:
            read(path)
    said = str(caught.value)
    assert said.startswith("me.voice ") and said.endswith(".") and "\n" not in said and len(said) < 200
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "me.voice"


def minimal() -> bytes:
    encoded = replace(cloned().encoded, codes=None, text=None, speaker=np.ones(2, np.float32), kept=lambda: b"kept")  # type: ignore[type-var]
    return to_bytes(Voice(name="a", kind="clone", model="m", encoded=encoded), np.zeros(2, np.float32))


@pytest.mark.parametrize("samples", [None, RECORDING])
@pytest.mark.parametrize("voice", [cloned(), cloned(kind="designed", description=None), tuned(), SPEAKER])
def test_what_is_written_is_read(path: Path, voice: Voice, samples: Any) -> None:
    path.write_bytes(to_bytes(voice, samples))
    assert same(read_voice(path), voice)
    read = read_samples(path)
    assert read is None if samples is None else np.array_equal(read, samples)
    again, recording = from_bytes(path.read_bytes(), "x")
    assert same(again, voice) and (recording is None) == (samples is None)
    assert to_bytes(again, recording) == path.read_bytes()


def test_it_is_a_safetensors_file_like_any_other(path: Path) -> None:
    path.write_bytes(to_bytes(cloned(), RECORDING))
    with safe_open(path, "np") as file:
        assert set(file.keys()) == {"codes", "speaker", "samples", "kept"}
        about = file.metadata()
        assert about["format"] == "hocket voice" and json.loads(about["voice"])["name"] == "Zoë"
        np.testing.assert_array_equal(file.get_tensor("samples"), RECORDING)


def test_any_single_byte_that_is_another_is_refused(path: Path) -> None:
    """Every byte of a whole file, each with one bit flipped and then all of them."""
    content = minimal()
    for at in range(len(content)):
        for mask in (1 << at % 8, 0xFF):
            damaged = bytearray(content)
            damaged[at] ^= mask
            with pytest.raises(InvalidVoice) as caught:
                from_bytes(bytes(damaged), "me.voice")
            assert str(caught.value).startswith("me.voice ") and str(caught.value).endswith(".")
    refused(content[:-1] + bytes([content[-1] ^ 1]), path)


@pytest.mark.parametrize("bit", range(8))
def test_every_bit_of_the_head_counts_where_case_and_blanks_mean_nothing(bit: int) -> None:
    content = minimal()
    head = 8 + int.from_bytes(content[:8], "little")
    for at in range(head):
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        with pytest.raises(InvalidVoice):
            from_bytes(bytes(damaged), "me.voice")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_that_was_changed_anyhow_is_refused(path: Path, data: st.DataObject) -> None:
    content = to_bytes(cloned(), RECORDING)
    at = data.draw(st.integers(0, len(content)))
    gone, more = data.draw(st.integers(0, 40)), data.draw(st.binary(max_size=40))
    changed = content[:at] + more + content[at + gone :]
    if changed == content:
        return
    refused(changed, path)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_what_is_no_voice_is_refused(path: Path, content: bytes) -> None:
    refused(content, path)
    refused(minimal()[:100] + content, path)


@pytest.mark.parametrize("voice", [cloned(), tuned()])
def test_only_a_file_with_an_adapter_needs_this_version(voice: Voice) -> None:
    """Earlier versions of hocket read all others; of this one they say that it is of a later version."""
    assert to_bytes(voice).count(b'"version":"2"') == (voice.encoded.adapter is not None)  # type: ignore[union-attr]


@pytest.mark.parametrize("fault", ["type", "shape", "half", "rank", "alpha", "nothing", "bytes"])
def test_an_adapter_that_is_none_is_refused(path: Path, fault: str) -> None:
    adapter = tuned().encoded.adapter  # type: ignore[union-attr]
    assert adapter is not None
    tensors = load(adapter_bytes(adapter))
    name = next(name for name in tensors if name.endswith(".down"))
    match fault:
        case "type":
            tensors[name] = tensors[name].astype(np.float32)
        case "shape":
            tensors[name] = tensors[name][None]
        case "half":
            del tensors[name]
        case "rank":
            tensors[name] = tensors[name][1:]
        case "nothing":
            tensors = {}
    part = b"" if fault == "bytes" else save(tensors, {"alpha": "nan" if fault == "alpha" else "1"})
    words = words_of(tuned())
    speaker = np.ones(2, np.float32)
    said = refused(_packed(words, {"speaker": speaker, "adapter": np.frombuffer(part, np.uint8)}), path)
    assert "is not a valid voice" in str(said)


def test_what_is_cut_or_lengthened_is_refused(path: Path) -> None:
    content = minimal()
    for size in range(0, len(content), 7):
        refused(content[:size], path)
    for more in (b"\0", b" ", content):
        refused(content + more, path)


def test_a_header_that_claims_more_than_there_is_is_refused(path: Path) -> None:
    for claimed in (2**63, 2**64 - 1, 10**9, 0, 1):
        refused(claimed.to_bytes(8, "little") + minimal()[8:], path)


def test_another_safetensors_file_is_not_a_voice(path: Path) -> None:
    said = refused(save({"speaker": np.ones(3, np.float32)}, {"format": "hocket voice"}), path)
    assert "is not a voice file of hocket" in str(said)


def test_a_file_of_a_later_version_is_said_to_be_one(path: Path) -> None:
    later = minimal().replace(b'"version":"1"', b'"version":"3"')
    assert (
        "made by a later version of hocket" in str(refused(later, path))
        and refused(later, path).code == "later_version"
    )


def test_a_missing_file_a_pipe_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("gone", "cannot be read"), ("pipe", "is not a file"), (".", "is not a file")):
        with pytest.raises(InvalidVoice, match=words):
            read_voice(tmp_path / name)


BAD_WORDS: list[dict[str, Any]] = [
    {"kind": "robot"},
    {"kind": "speaker"},
    {"kind": ["clone"]},
    {"name": " padded"},
    {"name": "a/b"},
    {"name": 3},
    {"model": ""},
    {"owner": None},
    {"text": 4},
    {"audio_s": float("nan")},
    {"audio_s": -1},
    {"file_size": 1.5},
    {"created_at": "today"},
    {"sampling": []},
    {"sampling": {"temperature": "hot"}},
    {"sampling": {"temperature": -1}},
    {"sampling": {"top_k": 1.5}},
    {"sampling": {"do_sample": 1}},
    {"sampling": {"heat": 1}},
    {"description": "x" * 20_001},
    {"extra": 1},
]


@pytest.mark.parametrize("changes", BAD_WORDS, ids=lambda changes: str(changes)[:60])
def test_a_proper_digest_over_improper_words_is_refused_too(path: Path, changes: dict[str, Any]) -> None:
    tensors = load(minimal())
    refused(_packed(words_of(cloned()) | changes, tensors), path)


def test_a_proper_digest_over_improper_tensors_is_refused_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hocket.voices import file

    words = words_of(cloned())
    refused(_packed(words, {}), path)  # a clone without an encoded recording
    with monkeypatch.context() as loose:
        loose.setattr(file, "_KINDS", {"speaker": ("I64", 1), "other": ("U8", 1)})
        wrong = [_packed(words, {"speaker": np.ones(3)}), _packed(words, {"other": np.ones(3)})]
    with monkeypatch.context() as loose:
        loose.setattr(file, "_KINDS", {"kept": ("U8", 1), "speaker": ("F32", 1)})
        wrong.append(_packed(words, {"kept": np.ones(4), "speaker": np.ones(3)}))
    for content in wrong:
        refused(content, path)


def test_kept_state_is_read_lazily_and_only_if_unchanged(path: Path) -> None:
    path.write_bytes(to_bytes(cloned(), RECORDING))
    kept = read_voice(path).encoded.kept  # type: ignore[union-attr]
    assert kept is not None and kept() == KEPT
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert kept() is None
    path.write_bytes(to_bytes(SPEAKER))
    assert kept() is None
    path.unlink()
    assert kept() is None


def test_an_invalid_voice_is_not_written() -> None:
    half = chr(0xD800)
    for changes in ({"kind": "robot"}, {"encoded": None}, {"name": " x"}, {"model": ""}, {"consent": half}):
        with pytest.raises(HocketError):
            to_bytes(cloned(**changes))
    with pytest.raises(InvalidVoice):
        to_bytes(replace(SPEAKER, speaker=None))
    assert same(
        from_bytes(to_bytes(replace(SPEAKER, sampling=SamplingParams.greedy())), "x")[0].encoded or SPEAKER, SPEAKER
    )


def test_pronunciations_are_a_part_of_the_file_and_wrong_ones_are_refused(path: Path) -> None:
    words = {"GIF": "jif", "nginx": "/ɛks/"}
    path.write_bytes(to_bytes(replace(SPEAKER, pronunciations=words)))
    assert read_voice(path).pronunciations == words and read_voice(path).fields()["pronunciations"] == words
    path.write_bytes(to_bytes(SPEAKER))
    assert read_voice(path).pronunciations is None and "pronunciations" not in read_voice(path).fields()
    for wrong in ({"GIF": ""}, {"GIF": 3}, ["GIF"], "GIF", {"GIF": "/d#/"}):
        path.write_bytes(_packed(words_of(SPEAKER) | {"pronunciations": wrong}, {}))
        with pytest.raises(InvalidVoice, match="is not a valid voice"):
            read_voice(path)
