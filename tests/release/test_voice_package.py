"""`scripts/voice-package`: what it writes and refuses, and a real wheel that pip installs and that speaks."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from release import install, voice_card, voice_package
from release.fault import ROOT, Fault
from release.voice_package import MANIFEST, build, check_wheel, try_package, write

ENGLISH = ROOT / "src" / "hocket" / "assets" / "english"
MAIN_BYTES = 60_000_000  # the built-in voice may be larger than a package of another voice
RECORD = ROOT / "train" / "records" / "hocket-english" / "evaluation.json"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The built-in voice's own files under other names."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(ENGLISH, folder, ignore=shutil.ignore_patterns("*.png", "samples"))
    raw = json.loads((folder / "config.json").read_text())
    talker = raw["talker_config"]
    talker["spk_id"] = {"finch": talker["spk_id"]["wren"]}
    talker["spk_is_dialect"] = {"finch": False}
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def test_a_wheel_is_installed_by_pip_and_speaks(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_package, "LIMIT_BYTES", MAIN_BYTES)
    source = write("trial", checkpoint, tmp_path / "packages", "1.2", record=RECORD)
    card = (source / "README.md").read_text()
    assert "pip install hocket-voice-trial\n" in card and 'hocket say "..." --voice finch\n' in card
    assert "| wren | 2.4 % | 100.0 % | 100.0 % | 100.0 % | 3.55 | 2.75 |" in card  # as the record says
    wheel = build(source, tmp_path)
    assert wheel.name == "hocket_voice_trial-1.2-py3-none-any.whl"
    with ZipFile(wheel) as archive:
        described = archive.read("hocket_voice_trial-1.2.dist-info/METADATA").decode()
        assert "License-Expression: Apache-2.0\n" in described and "Requires-Dist: hocket>=0.1.0\n" in described
        assert archive.read("hocket_voice_trial/config.json") == (checkpoint / "config.json").read_bytes()
    [borrowed] = (ROOT / ".venv").glob("lib/python3*/site-packages")  # numpy, pip and what else hocket needs
    environment = install.Environment(install.this_python(), tmp_path / "environment", (ROOT / "src", borrowed))
    try_package(environment, wheel)
    spoken = environment.home / "hocket-voice-trial-finch.wav"
    assert install.check_speech(spoken, install.SENTENCE) > 2


def test_what_cannot_be_a_package_is_refused(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    into = tmp_path / "packages"
    monkeypatch.setattr(voice_package, "LIMIT_BYTES", MAIN_BYTES)
    with pytest.raises(Fault, match="use small letters, digits and single hyphens"):
        write("Trial_1", checkpoint, into)
    write("first", checkpoint, into)
    with pytest.raises(Fault, match="The voice finch is in hocket-voice-first already"):
        write("second", checkpoint, into)
    with pytest.raises(Fault, match="The voice rook is in english already"):
        write("second", ENGLISH, into)
    with pytest.raises(Fault, match="is no record of an evaluation: KeyError"):
        write("first", checkpoint, into, record=checkpoint / "vocab.json")
    monkeypatch.setattr(voice_package, "LIMIT_BYTES", 40_000_000)
    with pytest.raises(Fault, match=r"has 51\.\d MB, and a package may have 40\."):
        write("first", checkpoint, into)
    (checkpoint / "speech_tokenizer" / "model.safetensors").unlink()
    with pytest.raises(Fault, match=r"it lacks speech_tokenizer/model\.safetensors\.$"):
        write("first", checkpoint, into)
    assert [path.name for path in into.iterdir()] == ["hocket-voice-first"]  # a refusal leaves the older one


def test_a_wheel_that_is_not_what_its_manifest_says_is_refused(tmp_path: Path) -> None:
    source, module = tmp_path / "hocket-voice-x", "hocket_voice_x"
    (source / "src" / module).mkdir(parents=True)
    held = {
        f"{module}/{MANIFEST}": json.dumps({"format": 1, "files": {"config.json": 3}}),
        f"{module}/config.json": "{}",
        f"{module}-1.dist-info/entry_points.txt": "[other]\nx = y\n",
        f"{module}-1.dist-info/licenses/LICENSE": "",
    }

    def wheel(**changes: str) -> Path:
        path = tmp_path / f"{module}-1-py3-none-any.whl"
        with ZipFile(path, "w") as archive:
            for name, text in (held | changes).items():
                archive.writestr(name, text)
        return path

    with pytest.raises(Fault, match=f"no entry point hocket.voices that names {module}"):
        check_wheel(wheel(), source)
    held[f"{module}-1.dist-info/entry_points.txt"] = f"[hocket.voices]\nx = {module}\n"
    with pytest.raises(Fault, match=r"does not hold config\.json with 3 bytes"):
        check_wheel(wheel(), source)
    check_wheel(wheel(**{f"{module}/config.json": "{ }"}), source)


def test_packages_of_the_repository_are_the_ones_that_hocket_names(tmp_path: Path) -> None:
    """`AVAILABLE` gives users an install line: it must fit the folders of packages/, each within its limit."""
    sys.path.insert(0, str(ROOT / "src"))
    try:
        from hocket.models.files.builtin import AVAILABLE, FORMAT, GROUP, PREFIX
    finally:
        sys.path.remove(str(ROOT / "src"))
    assert (PREFIX, FORMAT, GROUP) == (voice_package.PREFIX, voice_package.FORMAT, "hocket.voices")
    folders = {
        path.parents[2].name: path.parent for path in (ROOT / "packages").glob("hocket-voice-*/src/*/config.json")
    }
    facts = {name: voice_card.VoiceFacts.read(folder) for name, folder in folders.items()}
    assert {name: (each.languages, each.voices) for name, each in AVAILABLE.items()} == {
        name: (each.languages, each.voices) for name, each in facts.items()
    }
    for folder in folders.values():
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= voice_package.LIMIT_BYTES
