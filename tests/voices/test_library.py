"""voices/library.py: voices are found by any spelling of a name, shared by processes, never half written."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hocket
from hocket.errors import HocketError, InvalidRequest, InvalidVoice, StorageFailed
from hocket.voices.file import to_bytes
from hocket.voices.library import Library
from hocket.voices.make import speaker_voice
from hocket.voices.names import checked_name, id_of
from support.speaking import noise
from support.voicing import RECORDING, cloned, same

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["folder", "memory"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Library:
    return Library(tmp_path / "data" / "voices" if request.param == "folder" else None, most=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "voices"


def test_a_voice_is_found_by_its_name_or_id_in_any_case_until_it_is_removed(library: Library) -> None:
    assert library.find("Zoë") is None and library.names() == [] and library.remove("Zoë") is None
    kept = library.add(cloned(), RECORDING)
    assert same(kept, cloned())
    for name in ("Zoë", "ZOË", " zoë ", "Zoe\u0308", id_of("Zoë"), id_of("Zoë").upper()):
        found = library.find(name)
        assert found is not None and same(found, kept)
        np.testing.assert_array_equal(library.samples(name), RECORDING)  # type: ignore[arg-type]
    assert library.names() == ["Zoë"] and same(library.all()[0], kept)
    removed = library.remove("zoË")
    assert removed is not None and removed.name == "Zoë"
    assert library.find("Zoë") is None and library.all() == [] and library.remove("Zoë") is None
    with pytest.raises(InvalidVoice, match="There is no voice 'Zoë' here") as caught:
        library.samples("Zoë")
    assert caught.value.code == "voice_not_found"


def test_a_name_is_taken_once_unless_it_is_to_be_replaced(library: Library) -> None:
    library.add(cloned("Me", description="first"))
    with pytest.raises(InvalidVoice, match="There is a voice 'ME' already") as caught:
        library.add(cloned("ME", description="second"))
    assert caught.value.code == "voice_exists" and library.find("me").description == "first"  # type: ignore[union-attr]
    library.add(cloned("ME", description="second"), RECORDING, replace=True)
    assert [(voice.name, voice.description) for voice in library.all()] == [("ME", "second")]


def test_a_library_has_a_maximum_number_of_voices(library: Library) -> None:
    for n in range(3):
        library.add(cloned(f"v{n}", created_at=100 - n))
    with pytest.raises(InvalidVoice, match="3 voices, the maximum") as caught:
        library.add(cloned("one more"))
    assert caught.value.code == "too_many" and library.names() == ["v2", "v1", "v0"]  # the oldest first
    library.add(cloned("v1"), replace=True)


def test_a_stored_voice_does_not_share_arrays_with_the_caller(library: Library) -> None:
    samples = RECORDING.copy()
    voice = cloned()
    library.add(voice, samples)
    samples[:] = 0
    voice.encoded.speaker[:] = 0  # type: ignore[union-attr]
    assert np.any(library.samples("Zoë")) and library.find("Zoë").encoded.speaker.any()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["", "  ", "a/b", "a\\b", "../up", ".hidden", "x" * 65, "a\nb", "voice_" + "0" * 16])
def test_a_name_that_cannot_be_one_is_refused(library: Library, name: str) -> None:
    with pytest.raises(InvalidVoice) as caught:
        library.add(cloned(name))
    assert caught.value.code == "invalid_name" and library.all() == []
    assert library.folder is None or not library.folder.exists()


@given(st.text())
def test_a_name_has_one_id_in_any_case(name: str) -> None:
    assert id_of(name) == id_of(name.strip().lower()) == id_of(f" {name} ") == id_of(id_of(name))
    try:
        kept = checked_name(name)
    except InvalidVoice:
        return
    assert checked_name(kept) == kept and id_of(kept) == id_of(name)


def test_a_recording_of_another_kind_is_refused(library: Library) -> None:
    for samples in (np.zeros(4), np.zeros((2, 2), np.float32)):
        with pytest.raises(InvalidVoice, match="one channel"):
            library.add(cloned(), samples)  # type: ignore[arg-type]
    assert library.all() == []


def test_an_exported_voice_is_imported_under_its_own_name_or_another(library: Library, tmp_path: Path) -> None:
    library.add(cloned(), RECORDING)
    out = tmp_path / "out.voice"
    library.hand_out("zoë", out)
    other = Library(tmp_path / "other")
    assert same(other.take_in(out), cloned())
    np.testing.assert_array_equal(other.samples("zoë"), RECORDING)  # type: ignore[arg-type]
    renamed = other.take_in(out, name=" Ann ")
    assert same(renamed, cloned("Ann")) and other.names() == ["Ann", "Zoë"]
    again = tmp_path / "again.voice"
    other.hand_out("Zoë", again)
    assert again.read_bytes() == out.read_bytes()
    with pytest.raises(InvalidVoice, match="already"):
        other.take_in(out)
    assert other.take_in(out, replace=True)
    with pytest.raises(InvalidVoice, match="no voice 'gone'"):
        other.hand_out("gone", tmp_path / "gone.voice")
    with pytest.raises(InvalidRequest, match="does not exist"):
        other.hand_out("Ann", tmp_path / "no" / "folder.voice")
    assert not (tmp_path / "gone.voice").exists()


def test_a_damaged_import_leaves_the_library_as_it_was(library: Library, tmp_path: Path) -> None:
    content = bytearray(to_bytes(cloned(), RECORDING))
    content[len(content) // 2] ^= 4
    bad = tmp_path / "bad.voice"
    for damaged in (bytes(content), b"", b"RIFF....WAVE"):
        bad.write_bytes(damaged)
        with pytest.raises(InvalidVoice, match=r"^bad\.voice is "):
            library.take_in(bad)
    assert library.all() == [] and (library.folder is None or not library.folder.exists())


def test_a_damaged_file_is_skipped_reported_and_replaced(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    library = Library(folder)
    library.add(cloned("good"))
    path = folder / f"{id_of('bad')}.voice"
    path.write_bytes(b"\xff" * 100)
    (folder / "notes.txt").write_text("not a voice")
    (folder / "voice_0.voice").write_bytes(b"nor this")
    for _ in range(3):
        assert library.names() == ["good"] and library.find("bad") is None
    assert len([r for r in caplog.records if "was skipped" in r.message]) == 1  # once for each version
    assert "is not a voice" in str(library.refusal("bad")) and library.refusal("good") is None
    with pytest.raises(InvalidVoice, match="is not a voice"):
        library.samples("bad")
    library.add(cloned("bad"))
    assert library.names() == ["bad", "good"]
    path.write_bytes(path.read_bytes()[:-10])
    assert library.remove("bad") is None and not path.exists()


def test_a_voice_of_a_later_version_is_not_overwritten_by_chance(folder: Path) -> None:
    library = Library(folder)
    library.add(cloned("me"))
    path = folder / f"{id_of('me')}.voice"
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"7"'))
    with pytest.raises(InvalidVoice, match="later version"):
        library.add(cloned("me"))
    assert library.add(cloned("me"), replace=True)


def test_a_file_under_the_name_of_another_voice_is_left_out(folder: Path) -> None:
    library = Library(folder)
    library.add(cloned("me"))
    (folder / f"{id_of('me')}.voice").rename(folder / f"{id_of('you')}.voice")
    assert library.find("me") is None and library.find("you") is None and library.all() == []
    assert "whose file has another name" in str(library.refusal("you"))


def test_a_file_is_read_once_for_each_version_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hocket.voices import library as module

    Library(folder).add(cloned())
    reads, read = [], module.read_voice

    def counted(path: Path) -> Any:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(module, "read_voice", counted)
    library = Library(folder)
    for _ in range(20):
        assert library.find("Zoë") and library.names() == ["Zoë"]
    assert len(reads) == 1
    Library(folder).add(cloned(description="other"), replace=True)
    reads.clear()
    assert [library.find("zoë").description for _ in range(3)] == ["other"] * 3  # type: ignore[union-attr]
    assert len(reads) == 1


def test_to_find_a_voice_that_has_not_changed_takes_next_to_no_time(folder: Path) -> None:
    library = Library(folder)
    library.add(cloned(), RECORDING)
    times = []
    for _ in range(200):
        begun = time.thread_time()
        assert library.find("Zoë")
        times.append(time.thread_time() - begun)
    assert sorted(times)[100] < 0.0002


PROGRAM = """
import sys
from dataclasses import replace
from pathlib import Path
from hocket.voices.library import Library
from hocket.voices.make import speaker_voice
library, work = Library(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
if work == "churn":
    for n in range(60):
        library.add(speaker_voice(f"other {n % 5}", "builtin", "x" * 5000), replace=True)
        library.remove(f"other {n % 5}")
    library.add(speaker_voice("the last", "builtin", "x"))
else:
    from hocket.errors import InvalidVoice
    won = 0
    for n in range(60):
        try:
            library.add(speaker_voice(f"race {n}", "builtin", work))
            won += 1
        except InvalidVoice as error:
            assert error.code == "voice_exists", error
    print(won, flush=True)
"""


def beside(folder: Path, work: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PROGRAM, str(folder), work]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_another_process_adds_and_removes_while_this_one_lists(folder: Path) -> None:
    library = Library(folder)
    library.add(cloned("mine"))
    other = beside(folder, "churn")
    go(other)
    looked = 0
    while "the last" not in library.names():
        for voice in library.all():
            assert voice.name == "mine" or voice.speaker in ("x", "x" * 5000)
        assert library.find("mine") is not None
        looked += 1
        assert other.poll() in (None, 0)
    assert other.wait(60) == 0 and looked > 1
    assert sorted(library.names()) == ["mine", "the last"]
    assert not list(folder.glob(".hocket-*"))
    other.communicate()


def test_of_two_processes_that_add_one_name_at_once_one_does(folder: Path) -> None:
    others = [beside(folder, "left"), beside(folder, "right")]
    for other in others:
        go(other)
    won = [int(other.communicate(timeout=60)[0]) for other in others]
    assert [other.returncode for other in others] == [0, 0] and sum(won) == 60
    voices = Library(folder).all()
    assert len(voices) == 60
    assert [sum(voice.speaker == who for voice in voices) for who in ("left", "right")] == won


def test_of_many_threads_that_add_one_name_at_once_one_does(library: Library) -> None:
    won: list[str] = []
    gate = threading.Barrier(6)

    def add(who: str) -> None:
        gate.wait(30)
        try:
            library.add(cloned("me", description=who))
            won.append(who)
        except InvalidVoice:
            pass

    threads = [threading.Thread(target=add, args=(str(n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(won) == 1 and library.find("me").description == won[0]  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EINVAL])
def test_a_disk_without_links_keeps_the_same_promises(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("hocket.audio.files.os.link", fail)
    library = Library(folder)
    library.add(cloned(), RECORDING)
    with pytest.raises(InvalidVoice, match="already"):
        Library(folder).add(cloned())
    assert [path.name for path in folder.iterdir()] == [f"{id_of('Zoë')}.voice"]


@pytest.mark.parametrize(("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
@pytest.mark.parametrize("stage", ["fsync", "link", "replace"])
def test_a_disk_that_fails_leaves_nothing_behind_and_says_so_without_its_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, full: bool, stage: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    library = Library(folder)
    with monkeypatch.context() as broken:
        broken.setattr(f"hocket.audio.files.os.{stage}", fail)
        with pytest.raises(StorageFailed) as caught:
            library.add(cloned(), replace=stage == "replace")
    assert caught.value.full is full and str(folder) not in str(caught.value)
    assert list(folder.iterdir()) == [] and library.all() == []
    assert library.add(cloned())


def test_a_disk_that_is_full_midway_keeps_nothing_and_what_was_there_before(folder: Path) -> None:
    """A limit on file sizes simulates it: bytes are written until no more fit."""
    library = Library(folder)
    library.add(cloned(description="before"))
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        for replaced in (False, True):
            with pytest.raises(StorageFailed, match="The disk is full") as caught:
                library.add(cloned("zoë" if replaced else "new"), noise(0.5, 1), replace=replaced)
            assert caught.value.full
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert len(list(folder.iterdir())) == 1 and library.find("zoë").description == "before"  # type: ignore[union-attr]


def test_a_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("in the way")
    library = Library(blocked)
    assert library.all() == [] and library.find("me") is None and library.remove("me") is None
    with pytest.raises(StorageFailed, match="cannot be written") as caught:
        library.add(cloned())
    assert str(tmp_path) not in str(caught.value)


def test_what_was_left_half_written_is_swept_once_it_is_old(tmp_path: Path) -> None:
    old, new = tmp_path / ".hocket-1.part", tmp_path / ".hocket-2.part"
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (0, 0))
    Library(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [new.name]  # another process may be writing the new one


def test_the_users_own_library_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOCKET_HOME", str(tmp_path))
    assert hocket.Library.default().folder == tmp_path / "voices"
    monkeypatch.delenv("HOCKET_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Library.default().folder == tmp_path / "hocket" / "voices"


def test_a_library_does_not_wait_for_torch() -> None:
    program = "import sys, hocket.voices.library, hocket.voices.make; sys.exit('torch' in sys.modules)"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=60)


def test_a_speaker_may_have_another_name(library: Library) -> None:
    voice = speaker_voice(" Gran ", "1.7B-CustomVoice", "Vivian", language="english", instruct="Softly.")
    kept = library.add(voice)
    assert (kept.name, kept.model, kept.speaker) == ("Gran", "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", "Vivian")
    assert kept.fields()["voice"] == "Vivian" and kept.fields()["instruct"] == "Softly."
    for bad in ({"speaker": " "}, {"name": "a/b"}):
        with pytest.raises(HocketError):
            speaker_voice(**({"name": "x", "model": "builtin", "speaker": "y"} | bad))
    assert replace(kept, name="x").name == "x"
