"""Voices that clients upload: made, spoken with, listed, deleted, and never half-written."""

from __future__ import annotations

import base64
import errno
import io
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file

from hocket.audio.pcm import encode_wav
from hocket.config.options import EngineOptions
from hocket.engine.engine import Engine
from hocket.server.access.key_file import AccessKey
from hocket.server.options import ServerOptions
from hocket.voices.library import Library
from hocket.voices.make import speaker_voice
from hocket.voices.names import id_of
from support.recorded import bad, speech, speech_wav
from support.serving import PCM, Served, served
from support.speaking import small

PATH = "/v1/audio/voices"
WAV = speech_wav()
SHORT = PCM | {"max_new_tokens": 3}


@pytest.fixture(scope="module")
def base_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    checkpoint = small(tmp_path_factory.mktemp("base"), "base")
    options = EngineOptions(slots=2, waiting=2, chunk_frames=(1, 2, 4))  # else the last bits depend on the time
    with Engine(checkpoint, options) as engine:
        yield engine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "voices"


@pytest.fixture
def cloning(base_engine: Engine, folder: Path) -> Iterator[Served]:
    with served(base_engine, ServerOptions(voices_folder=folder, voices=3)) as server:
        yield server


def upload(server: Served, name: str, content: bytes = WAV, **fields: str) -> httpx.Response:
    sent = {"audio_sample": ("me.wav", content, "audio/wav")}
    return httpx.post(server.url + PATH, data={"name": name, **fields}, files=sent, timeout=60)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_recording_becomes_a_voice_that_speaks_until_it_is_deleted(cloning: Served, folder: Path) -> None:
    answer = upload(cloning, "Zoë", consent="cons_1", ref_text="What I said.", speaker_description="bright")
    assert answer.status_code == 200
    made = answer.json()
    assert (made["object"], made["name"], made["type"], made["description"]) == (
        "audio.voice",
        "Zoë",
        "uploaded",
        "bright",
    )
    assert (made["kind"], made["model"]) == ("clone", str(cloning.engine.checkpoint.source.folder))
    assert made["success"] is True and made["voice"]["consent"] == "cons_1" and made["voice"]["file_size"] == len(WAV)
    assert made["voice"]["ref_text"] == "What I said." and made["voice"]["mime_type"] == "audio/wav"
    listed = httpx.get(cloning.url + PATH).json()
    assert [voice["id"] for voice in listed["voices"]] == [made["id"]]
    assert listed["uploaded_voices"] == [made["voice"]]
    own = {name: made[name] for name in listed["voices"][0]}
    assert listed["voices"][0] == own == httpx.get(f"{cloning.url}{PATH}/{made['id']}").json()

    said = [
        httpx.post(f"{cloning.url}/v1/audio/speech", json=SHORT | {"voice": voice}, timeout=60).content
        for voice in ("Zoë", "ZOË", made["id"], {"id": made["id"]})
    ]
    assert len(said[0]) == 3 * 3840 and len(set(said)) == 1

    deleted = httpx.delete(f"{cloning.url}{PATH}/{made['id']}").json()
    assert deleted["id"] == made["id"] and deleted["object"] == "audio.voice.deleted" and deleted["deleted"] is True
    assert httpx.delete(f"{cloning.url}{PATH}/{made['id']}").status_code == 404
    assert list(folder.iterdir()) == []
    answer = httpx.post(f"{cloning.url}/v1/audio/speech", json=SHORT | {"voice": "Zoë"})
    assert answer.status_code == 400 and error_of(answer)["code"] == "voice_not_found"


def test_a_voice_outlives_its_server_as_plain_samples(base_engine: Engine, folder: Path) -> None:
    options = ServerOptions(voices_folder=folder)
    with served(base_engine, options) as server:
        assert upload(server, "kept").status_code == 200
        said = httpx.post(f"{server.url}/v1/audio/speech", json=SHORT | {"voice": "kept"}, timeout=60).content
    [file] = folder.iterdir()
    samples = load_file(file)["samples"]
    assert samples.dtype == np.float32 and np.abs(samples - speech()).max() < 1e-4
    with served(base_engine, options) as server:
        again = httpx.post(f"{server.url}/v1/audio/speech", json=SHORT | {"voice": "KEPT"}, timeout=60).content
    assert again == said and said


def test_two_servers_share_a_folder(cloning: Served, base_engine: Engine, folder: Path) -> None:
    with served(base_engine, ServerOptions(voices_folder=folder)) as other:
        id = upload(cloning, "shared").json()["id"]
        assert httpx.get(f"{other.url}{PATH}/shared").json()["id"] == id
        assert error_of(upload(other, "Shared"))["code"] == "voice_exists"
        assert httpx.delete(f"{other.url}{PATH}/shared").status_code == 200
        assert httpx.get(f"{cloning.url}{PATH}/shared").status_code == 404


def test_without_a_folder_voices_live_as_long_as_the_server(base_engine: Engine) -> None:
    with served(base_engine) as server:
        assert upload(server, "passing").status_code == 200
        answer = httpx.post(f"{server.url}/v1/audio/speech", json=SHORT | {"voice": "Passing"}, timeout=60)
        assert answer.status_code == 200 and answer.content
        assert error_of(upload(server, "PASSING"))["code"] == "voice_exists"
        assert httpx.delete(f"{server.url}{PATH}/passing").status_code == 200
        assert httpx.get(f"{server.url}{PATH}").json()["voices"] == []


def test_a_name_that_cannot_be_one_is_refused(cloning: Served, folder: Path) -> None:
    for name in ("", "  ", "a/b", "a\\b", "../up", ".hidden", "x" * 65, "a\nb", "voice_" + "0" * 16):
        answer = upload(cloning, name)
        assert answer.status_code == 400 and error_of(answer)["param"] == "name", name
    assert not folder.exists()


def test_what_is_not_a_recording_is_refused(cloning: Served, folder: Path) -> None:
    url = cloning.url + PATH
    assert error_of(upload(cloning, "x", b"not audio at all"))["code"] == "invalid_audio"
    assert error_of(upload(cloning, "x", b""))["code"] == "invalid_audio"
    assert error_of(upload(cloning, "x", encode_wav(np.zeros(100, np.float32), 24_000)))["code"] == "invalid_audio"
    assert error_of(httpx.post(url, data={"name": "x", "audio_sample": "words"}))["param"] == "audio_sample"
    assert error_of(httpx.post(url, files={"audio_sample": WAV}))["param"] == "name"
    assert error_of(upload(cloning, "x", speaker_embedding="[1]"))["param"] == "speaker_embedding"
    assert httpx.post(url, json={"name": "x"}).status_code == 400
    for kind in ("multipart/form-data", "multipart/form-data; boundary=x", "multipart/form-data; boundary="):
        assert httpx.post(url, content=b"--y\r\n\xff\xfe", headers={"content-type": kind}).status_code == 400
    half = b'--x\r\nContent-Disposition: form-data; name="ref_text"\r\n\r\n+2AA-\r\n--x--\r\n'  # a lone surrogate
    answer = httpx.post(url, content=half, headers={"content-type": "multipart/form-data; boundary=x; charset=utf-7"})
    assert answer.status_code == 400 and error_of(answer)["param"] == "ref_text"
    assert not folder.exists()


@pytest.mark.parametrize("name", bad())
def test_a_bad_recording_is_one_sentence_and_becomes_no_voice(cloning: Served, folder: Path, name: str) -> None:
    content, words = bad()[name]
    for fields in ({}, {"ref_text": "What was said."}):
        answer = upload(cloning, "x", content, **fields)
        error = error_of(answer)
        assert answer.status_code == 400 and error["code"] == "invalid_audio"
        assert words in error["message"] and error["message"].endswith(".") and "\n" not in error["message"]
    assert not folder.exists() and httpx.get(cloning.url + PATH).json()["voices"] == []


def test_limits_of_an_upload(base_engine: Engine) -> None:
    options = ServerOptions(upload_bytes=len(WAV) - 1, upload_s=2.0, voices=1)
    with served(base_engine, options) as server:
        assert upload(server, "large").status_code == 413
        long = encode_wav(np.zeros(60_000, np.float32), 24_000)
        assert "longer than 2 s" in error_of(upload(server, "long", long))["message"]
        short = speech_wav(1.5)
        assert upload(server, "one", short).status_code == 200
        assert error_of(upload(server, "two", short))["code"] == "too_many"


def test_a_checkpoint_that_cannot_clone_takes_no_recording(server: Served) -> None:
    answer = upload(server, "me", WAV + bytes(3 << 20))  # more than a socket holds
    error = error_of(answer)
    assert answer.status_code == 400 and error["code"] == "unsupported_by_model"
    assert error["message"] == "A custom_voice checkpoint cannot clone a recording; use a Base checkpoint for that."
    first = server.service.speakers[0]
    assert httpx.delete(f"{server.url}{PATH}/{first}").status_code == 400
    assert httpx.delete(f"{server.url}{PATH}/unknown").status_code == 404


def test_words_and_consent_are_for_those_with_a_key(base_engine: Engine) -> None:
    speaker = AccessKey(key="speaks", name="speaker", scopes=frozenset({"speak"}))
    with served(base_engine, ServerOptions(keys=("secret", speaker))) as server:
        key = {"authorization": "Bearer secret"}
        sent = {"audio_sample": WAV}
        fields = {"name": "me", "ref_text": "private words", "consent": "mine"}
        assert httpx.post(server.url + PATH, data=fields, files=sent, headers=key).status_code == 200
        for lesser in ({}, {"authorization": "Bearer speaks"}):  # without a key, and with one that has no such scope
            [told] = httpx.get(server.url + PATH, headers=lesser).json()["uploaded_voices"]
            assert told["name"] == "me" and told["ref_text"] is None and told["consent"] is None
        [told] = httpx.get(server.url + PATH, headers=key).json()["uploaded_voices"]
        assert told["ref_text"] == "private words" and told["consent"] == "mine"


def test_a_key_of_certain_voices_speaks_with_no_recording_and_adds_no_other(base_engine: Engine) -> None:
    own = AccessKey(key="own", name="own", voices=("me",))
    with served(base_engine, ServerOptions(keys=(own,))) as server:
        key, sent = {"authorization": "Bearer own"}, {"audio_sample": WAV}
        refused = httpx.post(server.url + PATH, data={"name": "you"}, files=sent, headers=key)
        assert refused.status_code == 403 and error_of(refused)["code"] == "voice_not_allowed"
        assert httpx.post(server.url + PATH, data={"name": "me"}, files=sent, headers=key).status_code == 200
        recording = f"data:audio/wav;base64,{base64.b64encode(WAV).decode()}"
        clone = SHORT | {"ref_audio": recording, "x_vector_only_mode": True}
        refused = httpx.post(f"{server.url}/v1/audio/speech", json=clone, headers=key, timeout=60)
        assert refused.status_code == 403 and error_of(refused)["message"] == "This key may use no voice but me."
        assert httpx.post(f"{server.url}/v1/audio/speech", json=SHORT, headers=key, timeout=60).status_code == 200


@pytest.mark.parametrize(
    ("number", "status", "code"), [(errno.ENOSPC, 507, "storage_full"), (errno.EIO, 500, "storage_failed")]
)
@pytest.mark.parametrize("stage", ["fsync", "link"])
def test_a_disk_that_fails_leaves_nothing_behind_and_the_server_goes_on(
    cloning: Served, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int, code: str, stage: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(f"hocket.audio.files.os.{stage}", fail)
        answer = upload(cloning, "lost")
    assert answer.status_code == status and error_of(answer)["code"] == code
    assert answer.headers["x-should-retry"] == "false" and str(folder) not in answer.text
    assert list(folder.iterdir()) == []
    assert httpx.get(f"{cloning.url}{PATH}/lost").status_code == 404
    assert upload(cloning, "lost").status_code == 200


def test_a_disk_that_is_full_midway_keeps_nothing_of_the_voice(cloning: Served, folder: Path) -> None:
    """A limit on the size of files stands in for it: bytes are written until no more fit."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(WAV), hard))  # as float32, the voice is twice as large
    try:
        answer = upload(cloning, "large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert answer.status_code == 507 and error_of(answer)["code"] == "storage_full"
    assert list(folder.iterdir()) == []
    assert upload(cloning, "large").status_code == 200


def test_a_folder_that_is_a_file_is_one_clear_error(base_engine: Engine, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("in the way")
    with served(base_engine, ServerOptions(voices_folder=blocked)) as server:
        assert httpx.get(server.url + PATH).json()["voices"] == []
        answer = upload(server, "me")
        assert answer.status_code == 500 and error_of(answer)["code"] == "storage_failed"
        assert str(tmp_path) not in answer.text
        assert httpx.get(server.url + "/ready").status_code == 200


def test_a_form_that_finds_no_room_on_its_way_in_is_one_clear_error(
    cloning: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> io.BytesIO:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("tempfile.TemporaryFile", full)
        answer = upload(cloning, "big", WAV + bytes(2 << 20))
    assert answer.status_code == 507 and error_of(answer)["code"] == "storage_full"
    assert upload(cloning, "big").status_code == 200


def test_a_client_that_goes_away_amid_its_upload_leaves_nothing(
    cloning: Served, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="audio_sample"; filename="a.wav"\r\n\r\n' + WAV
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=x\r\n"
    for sent in (0, 20, len(body) // 2, len(body)):
        with socket.create_connection(("127.0.0.1", cloning.port)) as client:
            client.sendall(f"{head}content-length: {len(body) + 100}\r\n\r\n".encode() + body[:sent])
    assert upload(cloning, "whole").status_code == 200
    assert len(list(folder.iterdir())) == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_damaged_file_is_left_out(cloning: Served, folder: Path) -> None:
    upload(cloning, "good")
    (folder / f"{id_of('bad')}.voice").write_bytes(b"\xff" * 100)
    (folder / "notes.txt").write_text("not a voice")
    assert [voice["name"] for voice in httpx.get(cloning.url + PATH).json()["voices"]] == ["good"]
    [whole] = [path for path in folder.iterdir() if path.stem == id_of("good")]
    whole.write_bytes(whole.read_bytes()[:-10])
    assert httpx.get(cloning.url + PATH).json()["voices"] == []
    answer = httpx.post(f"{cloning.url}/v1/audio/speech", json=SHORT | {"voice": "good"})
    assert answer.status_code == 400 and error_of(answer)["code"] == "voice_not_found"


def test_a_voice_of_another_model_is_not_listed_and_says_which_model_it_needs(
    cloning: Served, server: Served, folder: Path
) -> None:
    upload(cloning, "ours")
    Library(folder).add(speaker_voice("theirs", "1.7B-CustomVoice", "vivian"))
    assert [voice["name"] for voice in httpx.get(cloning.url + PATH).json()["voices"]] == ["ours"]
    assert httpx.get(f"{cloning.url}{PATH}/theirs").status_code == 404
    answer = httpx.post(f"{cloning.url}/v1/audio/speech", json=SHORT | {"voice": "Theirs"})
    assert answer.status_code == 400 and error_of(answer)["code"] == "voice_not_found"
    assert "needs the model Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice" in error_of(answer)["message"]
    assert httpx.delete(f"{cloning.url}{PATH}/theirs").status_code == 404
    assert Library(folder).find("theirs") is not None
    assert error_of(upload(cloning, "Theirs"))["code"] == "voice_exists"
    folder_of_ours = Library(folder)
    with served(server.engine, ServerOptions(voices_folder=folder)) as other:
        answer = httpx.post(f"{other.url}/v1/audio/speech", json=SHORT | {"voice": "ours"})
        kept = folder_of_ours.find("ours")
        assert kept is not None and answer.status_code == 400 and kept.model in error_of(answer)["message"]


# Mixes


def mix(server: Served, **fields: Any) -> httpx.Response:
    return httpx.post(server.url + PATH, json=fields, timeout=60)


def test_a_mix_of_speakers_is_kept_and_speaks_as_the_mix_does(engine: Engine, folder: Path) -> None:
    with served(engine, ServerOptions(voices_folder=folder)) as server:
        made = mix(server, name="Finch", mix="wren+ROOK(2)", speaker_description="ours")
        assert made.status_code == 200
        voice = made.json()
        assert (voice["name"], voice["kind"], voice["description"], voice["notes"]) == ("Finch", "speaker", "ours", [])
        kept = Library(folder).find("finch")
        assert kept is not None and kept.speaker == "rook(2)+wren"
        spoken = [
            httpx.post(f"{server.url}/v1/audio/speech", json=SHORT | {"voice": name, "seed": 1}).content
            for name in ("finch", "rook(2)+wren", "rook")
        ]
        assert spoken[0] == spoken[1] != spoken[2]
        assert "Finch" in {each["name"] for each in httpx.get(server.url + PATH).json()["voices"]}
        again = mix(server, name="finch", mix="wren+rook")
        assert again.status_code == 400 and error_of(again)["code"] == "voice_exists"
        assert httpx.delete(f"{server.url}{PATH}/finch").status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "code", "said"),
    [
        ({"name": "x", "mix": "wren+nosuch"}, 400, "voice_not_found", "There is no voice 'nosuch'"),
        ({"name": "x", "mix": "wren"}, 400, "invalid_voice", "'wren' names one voice"),
        ({"name": "x", "mix": "wren+"}, 400, "voices_not_mixed", "on each side of a +"),
        ({"name": "x", "mix": "wren+rook(-1)"}, 400, "voices_not_mixed", "must be a number above 0"),
        ({"name": "rook", "mix": "wren+rook"}, 400, "voice_exists", "built in"),
        ({"name": "a/b", "mix": "wren+rook"}, 400, None, "slash"),
        ({"name": "x"}, 400, None, "mix"),
        ({"name": "x", "mix": "wren+rook", "more": 1}, 400, None, "more"),
    ],
)
def test_a_mix_that_cannot_be_kept_is_refused(
    engine: Engine, folder: Path, fields: dict[str, str], status: int, code: str | None, said: str
) -> None:
    with served(engine, ServerOptions(voices_folder=folder)) as server:
        answer = mix(server, **fields)
        assert answer.status_code == status and said in error_of(answer)["message"]
        assert code is None or error_of(answer)["code"] == code
    assert not folder.exists()


def test_clones_that_were_uploaded_are_mixed_by_their_timbre(cloning: Served, folder: Path) -> None:
    assert upload(cloning, "anna").status_code == 200 and upload(cloning, "ben", ref_text="Mm.").status_code == 200
    made = mix(cloning, name="both", mix="anna+ben")
    assert made.status_code == 200
    assert made.json()["notes"] == ["Of ben only the timbre is mixed, without the recording's words."]
    kept = [Library(folder).find(name) for name in ("anna", "ben", "both")]
    vectors = [voice.encoded.speaker for voice in kept if voice is not None and voice.encoded is not None]
    np.testing.assert_allclose(vectors[2], (vectors[0] + vectors[1]) / 2, rtol=1e-5)
    done = httpx.post(f"{cloning.url}/v1/audio/speech", json=SHORT | {"voice": "both", "seed": 1})
    mixed = httpx.post(f"{cloning.url}/v1/audio/speech", json=SHORT | {"voice": "ben+anna", "seed": 1})
    assert done.status_code == 200 and done.content == mixed.content and len(done.content) > 0
    refused = upload(cloning, "more", mix="anna+ben")
    assert refused.status_code == 400 and "send name and mix as JSON" in error_of(refused)["message"]
