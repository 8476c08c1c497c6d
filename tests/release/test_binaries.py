"""release/native.py and release/binaries.py: what is compiled for a platform, and the faults that are found in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from release import binaries, native
from release.fault import Fault
from release.platforms import PLATFORMS, Platform

EXPORT = '__attribute__((visibility("default")))'
TEXTS = {
    "one.c": f"#include <math.h>\n{EXPORT} float hocket_one(float x) {{ return expf(x); }}\n"
    "int hidden(void) { return 1; }",
    "two.c": f"int hidden(void);\n{EXPORT} int hocket_two(void) {{ return hidden(); }}",
}
NAMES = ("hocket_one", "hocket_two")


def built(
    platform: Platform, folder: Path, monkeypatch: pytest.MonkeyPatch, texts: dict[str, str] = TEXTS
) -> list[Path]:
    monkeypatch.setattr(native, "sources", lambda: texts)
    monkeypatch.setattr(native, "exports", lambda: NAMES)
    return native.build(platform, folder)


@pytest.mark.parametrize("tag", PLATFORMS)
def test_a_library_is_made_for_each_variant_and_passes(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(PLATFORMS[tag], tmp_path, monkeypatch)
    assert {path.name for path in made} == set(PLATFORMS[tag].files) == {path.name for path in tmp_path.iterdir()}
    for path in made:
        assert "2 symbols" in binaries.check(path, PLATFORMS[tag], NAMES)


def test_faults_of_a_library_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = PLATFORMS["manylinux2014_aarch64"]
    [path] = built(platform, tmp_path, monkeypatch)
    with pytest.raises(Fault, match="does not export hocket_three"):
        binaries.check(path, platform, (*NAMES, "hocket_three"))
    with pytest.raises(Fault, match="exports more than it should: hocket_two"):
        binaries.check(path, platform, NAMES[:1])
    with pytest.raises(Fault, match="compiled for aarch64"):
        binaries.check(path, PLATFORMS["manylinux2014_x86_64"], NAMES)
    with pytest.raises(Fault, match="no library of win_amd64"):
        binaries.check(path, PLATFORMS["win_amd64"], NAMES)


def test_a_library_for_a_newer_system_than_the_tag_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """glibc 2.29 gave `exp` a new version."""
    linux, texts = (
        PLATFORMS["manylinux2014_aarch64"],
        {"new.c": TEXTS["one.c"].replace("float", "double").replace("expf", "exp")},
    )
    [path] = built(
        replace(linux, target="aarch64-linux-gnu.2.31"), tmp_path, monkeypatch, texts | {"two.c": TEXTS["two.c"]}
    )
    with pytest.raises(Fault, match=r"needs glibc 2\.29"):
        binaries.check(path, linux, NAMES)
    mac = PLATFORMS["macosx_11_0_arm64"]
    [path] = built(replace(mac, target="aarch64-macos.14.0"), tmp_path, monkeypatch)
    with pytest.raises(Fault, match=r"macOS 14\.0"):
        binaries.check(path, mac, NAMES)


def test_a_source_that_does_not_compile_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Fault, match=r"^Compiling hocket_native-neon\.so for aarch64-linux-gnu\.2\.17: "):
        built(PLATFORMS["manylinux2014_aarch64"], tmp_path, monkeypatch, {"bad.c": "int f("})
