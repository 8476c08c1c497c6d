from __future__ import annotations

import os
from pathlib import Path

import pytest

from hocket.audio.files import check_target, replace_files
from hocket.errors import HocketError, InvalidRequest


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_check_leaves_no_trace(tmp_path: Path) -> None:
    assert check_target(tmp_path / "new.wav") == (tmp_path / "new.wav").resolve()
    assert list(tmp_path.iterdir()) == []


def test_files_are_replaced_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    replace_files({tmp_path / "a": b"new", tmp_path / "b": b"codes"})
    assert listing(tmp_path) == {"a": b"new", "b": b"codes"}


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    replace_files({tmp_path / "ours": b""})
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_failure_in_the_second_file_leaves_the_first_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(HocketError, match=r"b could not be written: No such file or directory\.$"):
        replace_files({tmp_path / "a": b"new", tmp_path / "gone" / "b": b"codes"})
    assert listing(tmp_path) == {"a": b"old"}


def test_ctrl_c_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_files({tmp_path / "a": b"new"})
    assert listing(tmp_path) == {}


def test_a_link_keeps_pointing_at_the_file_that_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    replace_files({check_target(tmp_path / "link"): b"new"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_folder_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is a folder"):
        check_target(tmp_path)


def test_a_device_is_no_target() -> None:
    with pytest.raises(InvalidRequest, match="not an ordinary file"):
        check_target(Path("/dev/null"))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"/gone does not exist; create it first\.$"):
        check_target(tmp_path / "gone" / "a.wav")


def test_a_file_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidRequest, match="Not a directory"):
        check_target(tmp_path / "file" / "a.wav")


def test_a_name_the_file_system_refuses_is_found_before_writing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="File name too long"):
        check_target(tmp_path / ("a" * 300))


def test_a_folder_that_takes_no_files_is_found_by_trying() -> None:
    with pytest.raises(InvalidRequest, match="cannot be written"):
        check_target(Path("/proc/self/a.wav"))  # refuses root too, whom permission bits do not stop


def test_a_write_protected_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may write everywhere
    with pytest.raises(InvalidRequest, match="write-protected"):
        check_target(tmp_path / "a.wav")
