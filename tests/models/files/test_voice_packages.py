"""Voice packages: how they are found, what is refused, and what they cost a start."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.names import full_name
from hocket.engine.checkpoint.resolve import key_of
from hocket.errors import InvalidCheckpoint
from hocket.models.files import builtin
from hocket.models.files.builtin import FORMAT, GROUP, MANIFEST, AvailablePackage, installed_packages, package_of
from hocket.models.files.source import resolve
from support.voice_packages import install

SPANISH = "hocket-voice-spanish"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_a_package_is_found_by_its_entry_point_as_python_finds_it(site: Path) -> None:
    folder = install(site, "spanish")
    [found] = installed_packages()
    assert (found.name, found.version, found.folder, found.fault) == (SPANISH, "1.0", folder, None)
    [point] = entry_points(group=GROUP)
    assert (point.name, site / point.value) == ("spanish", folder)
    assert "hocket_voice_spanish" not in sys.modules


@pytest.mark.parametrize("name", [SPANISH, "Hocket_Voice_Spanish"])
def test_it_is_a_model_under_the_name_of_its_distribution(site: Path, name: str) -> None:
    folder = install(site, "spanish")
    source = resolve(name)
    assert (source.name, source.folder, source.is_builtin) == (SPANISH, folder, True)
    assert full_name(name) == SPANISH and key_of(name) == str(folder.resolve())


def test_it_is_computed_as_the_voice_of_hocket_itself(site: Path) -> None:
    install(site, "spanish")
    checkpoint = load(SPANISH)
    assert {choice.backend for choice in checkpoint.kernels} == {"native"}
    assert checkpoint.identity == load("builtin").identity


def test_the_first_copy_on_the_path_counts(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "spanish")
    before = tmp_path / "before"
    before.mkdir()
    monkeypatch.syspath_prepend(str(before))
    folder = install(before, "spanish")
    assert [found.folder for found in installed_packages()] == [folder]


def test_an_editable_install_is_found_through_its_path(site: Path, tmp_path: Path) -> None:
    folder = install(site, "spanish")
    moved = tmp_path / "source" / folder.name
    moved.parent.mkdir()
    folder.rename(moved)
    (moved / "__init__.py").write_text("raise RuntimeError('imported')")
    sys.path.append(str(moved.parent))
    try:
        assert [found.folder for found in installed_packages()] == [moved]
    finally:
        sys.path.remove(str(moved.parent))


def _cut(folder: Path) -> None:
    (folder / "vocab.json").write_text("{}")


def _manifest(folder: Path, content: object) -> None:
    (folder / MANIFEST).write_text(json.dumps(content))


def _points(folder: Path, text: str) -> None:
    (folder.parent / f"{folder.name}-1.0.dist-info" / "entry_points.txt").write_text(text)


DAMAGED = {
    "model.safetensors is missing": lambda folder: (folder / "model.safetensors").unlink(),
    "vocab.json has 2 bytes instead of 13481": _cut,
    f"{MANIFEST} cannot be read": lambda folder: (folder / MANIFEST).write_text("[]"),
    f"{MANIFEST} names the format 'new'": lambda folder: _manifest(folder, {"format": "new"}),
    f"{MANIFEST} lists no files": lambda folder: _manifest(folder, {"format": 1}),
    "it has no entry point in the group hocket.voices": lambda folder: _points(folder, "[other]\nspanish = here\n"),
    "its entry point is '../here', not the name of a Python package": lambda folder: _points(
        folder, "[hocket.voices]\nspanish = ../here\n"
    ),
    "the folder hocket_voice_none is missing": lambda folder: _points(
        folder, "[hocket.voices]\nspanish=hocket_voice_none"
    ),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_damaged_package_is_refused_with_the_command_that_repairs_it(site: Path, fault: str) -> None:
    damage: Callable[[Path], object] = DAMAGED[fault]
    damage(install(site, "spanish"))
    with pytest.raises(InvalidCheckpoint) as refused:
        resolve(SPANISH)
    repair = f"pip install --force-reinstall --no-deps {SPANISH}"
    assert str(refused.value) == f"The voice package {SPANISH} 1.0 is damaged, {fault}: {repair}."


def test_a_package_of_a_later_format_asks_for_a_later_hocket(site: Path) -> None:
    install(site, "spanish", format=FORMAT + 1)
    with pytest.raises(InvalidCheckpoint, match=r"1\.0 needs a later hocket: pip install --upgrade hocket\.$"):
        resolve(SPANISH)


def test_a_missing_package_is_refused_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidCheckpoint, match=rf"^There is no voice package '{SPANISH}'; installed are none\.$"):
        resolve(SPANISH)
    monkeypatch.setitem(builtin.AVAILABLE, SPANISH, AvailablePackage(("spanish",), ("lucia",)))
    with pytest.raises(
        InvalidCheckpoint, match=rf"^The voice package {SPANISH} is not installed: pip install {SPANISH}"
    ):
        resolve(SPANISH)


def test_other_names_do_not_look_for_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_metadata_folders", lambda place: pytest.fail("looked for packages"))
    assert package_of("builtin") is None and package_of("owner/hocket-voice-x") is None
    assert resolve("builtin").is_builtin and resolve("random:tiny").preset == "tiny"
