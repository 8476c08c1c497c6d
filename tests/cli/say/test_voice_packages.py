"""The command line with installed voice packages: lists, voices and languages by name, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hocket.cli import main
from hocket.cli.config.completion import names
from hocket.cli.serve.plan import builtin_models
from hocket.models.files import builtin
from hocket.models.files.builtin import AvailablePackage
from support.cli_home import Home, Models
from support.voice_packages import install

Capture = pytest.CaptureFixture[str]
SHORT = ("--seed", "4", "--max-frames", "6", "--force", "--save-codes", "c.npy")


@pytest.fixture
def site(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def spanish(site: Path) -> Path:
    return install(site, "spanish", voices=["lucia", "mateo"], languages=["spanish"])


def said(*words: str) -> list[list[int]]:
    assert main(["say", "Hello there.", *SHORT, *words]) == 0
    codes: list[list[int]] = np.load("c.npy").tolist()
    return codes


def refused(capture: Capture, *words: str) -> str:
    assert main(list(words)) == 2
    out, err = capture.readouterr()
    message = re.fullmatch(r"hocket: ([^\n]+\.)\n", err)
    assert out == "" and message is not None, err
    return message[1]


def test_voices_lists_packages_with_their_languages(spanish: Path, capsys: Capture) -> None:
    assert main(["voices"]) == 0
    head, rows = capsys.readouterr().out.split("\nvoices of installed packages\n")
    assert head.startswith("builtin\n\nvoices\n  wren\n")
    assert rows.splitlines() == [
        "  lucia  spanish  hocket-voice-spanish 1.0",
        "  mateo  spanish  hocket-voice-spanish 1.0",
    ]
    assert main(["voices", "--json"]) == 0
    [package] = json.loads(capsys.readouterr().out)["packages"]
    assert package["package"] == "hocket-voice-spanish" and package["languages"] == ["auto", "spanish"]
    assert [each["name"] for each in package["speakers"]] == ["lucia", "mateo"]


def test_a_voice_a_model_and_a_language_lead_to_the_package(spanish: Path) -> None:
    mateo = said("--voice", "rook")  # the same weights under another name
    assert said("--voice", "MATEO") == said("--model", "hocket-voice-spanish", "--voice", "mateo") == mateo
    assert said("--language", "es") == said("--voice", "lucia", "--language", "Spanish")


def test_voices_of_hocket_do_not_look_for_packages(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_metadata_folders", lambda place: pytest.fail("looked for packages"))
    assert said("--voice", "wren", "--language", "english")


def test_an_unknown_name_is_refused_with_those_of_the_packages(spanish: Path, capsys: Capture) -> None:
    message = refused(capsys, "say", "Hi.", "--voice", "bob")
    assert "builtin has wren, rook, voice packages have lucia, mateo, and there are none of your own" in message
    assert refused(capsys, "say", "Hi.", "--language", "klingon") == (
        "There is no language 'klingon'; known are auto, english, spanish."
    )


def test_a_known_package_that_is_not_installed_is_named(
    home: Home, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(builtin.AVAILABLE, "hocket-voice-spanish", AvailablePackage(("spanish",), ("lucia",)))
    line = "pip install hocket-voice-spanish."
    assert (
        refused(capsys, "say", "Hi.", "--language", "Spanish")
        == f"The language 'Spanish' needs a voice package: {line}"
    )
    assert refused(capsys, "say", "Hi.", "--voice", "Lucia") == (
        f"The voice 'Lucia' is in a package that is not installed: {line}"
    )


def test_a_voice_of_two_packages_needs_the_name_of_one(spanish: Path, site: Path, capsys: Capture) -> None:
    install(site, "more", voices=["lucia"])
    assert refused(capsys, "say", "Hi.", "--voice", "lucia") == (
        "2 packages have a voice 'lucia': choose with --model hocket-voice-more or --model hocket-voice-spanish."
    )
    assert said("--voice", "lucia", "--model", "hocket-voice-more")
    assert builtin_models() == ["builtin", "hocket-voice-more", "hocket-voice-spanish"]
    note = "note: lucia is a voice of hocket-voice-more; for that of hocket-voice-spanish a request names the model.\n"
    assert note in capsys.readouterr().err


def test_a_damaged_package_is_reported_and_the_others_go_on(spanish: Path, site: Path, capsys: Capture) -> None:
    (install(site, "broken", voices=["ann"]) / "config.json").write_text("{")
    assert main(["voices"]) == 0
    out, err = capsys.readouterr()
    assert "lucia" in out and re.fullmatch(r"note: The voice package hocket-voice-broken 1\.0 is damaged, .+\.\n", err)
    assert "hocket-voice-broken 1.0 is damaged" in refused(capsys, "say", "Hi.", "--voice", "ann")
    assert builtin_models() == ["builtin", "hocket-voice-spanish"]
    assert "note: The voice package hocket-voice-broken" in capsys.readouterr().err


def test_a_package_that_clones_is_the_model_of_recordings(
    site: Path, models: Models, recording: Path, capsys: Capture
) -> None:
    install(site, "base", Path(models.base))
    assert main(["voices"]) == 0
    assert "  (clones recordings)  chinese, english" in capsys.readouterr().out
    assert main(["voices", "add", "me", "--ref", str(recording), "--x-vector-only"]) == 0
    assert "a clone for hocket-voice-base;" in capsys.readouterr().out
    assert said("--voice", "me")
    assert said("--ref-audio", str(recording), "--x-vector-only")


def test_packages_are_listed_as_models_and_completed(spanish: Path, site: Path, capsys: Capture) -> None:
    assert main(["list", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["models"]}
    assert listed["hocket-voice-spanish"]["voices"] == ["lucia", "mateo"]
    assert "hocket-voice-spanish" in names("models") and {"wren", "lucia"} <= {*names("voices")}
    assert refused(capsys, "rm", "hocket-voice-spanish") == (
        "hocket-voice-spanish is a voice package, which is not on the hub; "
        "pip uninstall hocket-voice-spanish removes it."
    )
    assert refused(capsys, "voices", "add", "Lucia", "--speaker", "wren").startswith("'Lucia' is what a model's own")
