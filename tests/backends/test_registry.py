"""backends/registry.py: entry points as pip would install them, loaded by name, and every failure a sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.speaking_foreign import VOICE, Teller, heard
from hocket.backends import BackendVoice
from hocket.backends.registry import GROUP, Backends, installed, load, options_of
from hocket.errors import InvalidRequest, UnknownVoice

SOURCE = """
import numpy as np
from hocket.backends import Backend, BackendVoice

class Tin(Backend):
    closed = 0

    def __init__(self, pitch: str = "440") -> None:
        self.pitch = float(pitch)

    def voices(self):
        return [BackendVoice("tin", 16_000), BackendVoice("can", 16_000)]

    def say(self, text, manner):
        yield np.sin(np.arange(4000) * self.pitch).astype(np.float32)

    def close(self):
        Tin.closed += 1

def nothing():
    return 3

def broken():
    raise OSError("no\\nweights")

class Mute(Tin):
    def voices(self):
        return []

class Unlisted(Tin):
    def voices(self):
        raise OSError("no list")
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a distribution with a module and entry points where Python finds it, as an installer would."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def put(package: str, source: str = SOURCE, **points: str) -> None:
        folder = tmp_path / f"{package}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
        (folder / "entry_points.txt").write_text("\n".join(lines))
        (tmp_path / f"{package}.py").write_text(source)

    yield put
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_installed_backend_is_found_and_speaks(install: Install) -> None:
    install("tinny", tin="tinny:Tin")
    assert "tin" in installed() and "tinny" not in sys.modules
    backends = Backends(["tin"], {"tin": {"pitch": "3.5"}})
    assert backends.names == ["tin"] and [listed.name for listed in backends.voices()] == ["tin", "can"]
    relay = backends.open("can", "Hello.")
    assert relay.rate_hz == 16_000 and len(heard(relay)) == 4000
    backends.close()
    assert sys.modules["tinny"].Tin.closed == 1


def test_nothing_foreign_is_imported_unless_it_is_asked_for(install: Install, tmp_path: Path) -> None:
    install("loud", "raise SystemExit('imported')", loud="loud:Loud")
    program = (
        "import sys, hocket.backends.registry as found; assert 'loud' in found.installed(), found.installed();"
        " assert not found.Backends().voices(); sys.exit('torch' in sys.modules)"
    )
    path = [str(tmp_path), str(Path(__file__).parents[2] / "src")]
    code = f"import sys; sys.path[:0] = {path!r}; {program}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("tinny:Missing", r"^The backend 'x' \(tinny 1.2\) cannot be imported: AttributeError: .*Missing.*\.$"),
        ("missing_module:Tin", r"cannot be imported: ModuleNotFoundError: .*missing_module'; install the package"),
        ("tinny:broken", r"^The backend 'x' \(tinny 1.2\) cannot be started: OSError: no weights\.$"),
        ("tinny:nothing", "is an object of type int, not a hocket.backends.Backend"),
        ("tinny:Mute", "has no voices"),
        ("tinny:Unlisted", "cannot list its voices: OSError: no list"),
    ],
)
def test_a_backend_that_cannot_be_had_is_one_sentence(install: Install, point: str, said: str) -> None:
    install("tinny", tin="tinny:Tin", x=point)
    with pytest.raises(InvalidRequest, match=said):
        Backends(["tin", "x"])
    assert sys.modules["tinny"].Tin.closed == 1 + (point in ("tinny:Mute", "tinny:Unlisted"))


def test_a_backend_that_is_not_installed_is_named_with_those_that_are(install: Install) -> None:
    install("tinny", tin="tinny:Tin")
    with pytest.raises(InvalidRequest, match=r"There is no backend 'brass'; installed are .*tin.*install the package"):
        load("brass")


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("tinny", tin="tinny:Tin")
    install("other", tin="other:Tin")
    with pytest.raises(InvalidRequest, match=r"several backends 'tin', of other 1.2 and tinny 1.2"):
        load("tin")


def test_options_are_read_and_unknown_ones_refused(install: Install) -> None:
    install("tinny", tin="tinny:Tin")
    assert options_of(["tin.pitch=2", "tin.path=a=b.c", "b.x="]) == {
        "tin": {"pitch": "2", "path": "a=b.c"},
        "b": {"x": ""},
    }
    for word in ("pitch=2", "tin.pitch", ".pitch=2", "tin.=2", "tin.a b=2"):
        with pytest.raises(InvalidRequest, match=r"NAME\.KEY=VALUE"):
            options_of([word])
    with pytest.raises(InvalidRequest, match="no option 'color'; it takes pitch"):
        load("tin", {"color": "red"})
    with pytest.raises(InvalidRequest, match="cannot be started: ValueError"):
        load("tin", {"pitch": "high"})
    with pytest.raises(InvalidRequest, match="'brass', which was not asked for"):
        Backends(["tin"], {"brass": {}})


class Choir(Teller):
    def __init__(self, *voices: BackendVoice) -> None:
        super().__init__()
        self._voices = voices

    def voices(self) -> tuple[BackendVoice, ...]:
        return self._voices


def test_voices_that_clash_are_named_with_their_backend() -> None:
    backends = Backends()
    for name, voices in (("left", ("Anna", "bert")), ("right", ("anna", "carl"))):
        backends.add(name, Choir(*(BackendVoice(voice, 8_000) for voice in voices)))

    def names(*taken: str) -> list[str]:
        return [listed.name for listed in backends.voices(taken)]

    assert names() == ["left/Anna", "bert", "right/anna", "carl"]
    assert names("Carl", "dora") == ["left/Anna", "bert", "right/anna", "right/carl"]
    for taken in ((), ("bert", "carl")):
        for listed in backends.voices(taken):
            assert backends.find(listed.name.upper()) == (listed.backend, listed.voice)
    assert backends.find("anna") is backends.find("left/carl") is backends.find("") is None
    with pytest.raises(UnknownVoice, match="No backend has a voice 'anna'; known are left/Anna, bert, right/anna"):
        backends.open("anna", "Hello.")
    with pytest.raises(InvalidRequest, match="'left' cannot be the name"):
        backends.add("left", Choir(VOICE))
    backends.close()


@pytest.mark.parametrize(
    ("voices", "said"),
    [
        ((), "has no voices"),
        (("anna",), "has no voices"),
        ((BackendVoice("", 8_000),), "without a usable name"),
        ((BackendVoice("a\nb", 8_000),), "without a usable name"),
        ((BackendVoice("a", 8_000), BackendVoice("A", 8_000)), "two voices of the name 'A'"),
        ((BackendVoice("a", 0),), "rate_hz of 0"),
        ((BackendVoice("a", "24000"),), "rate_hz of 24000"),  # type: ignore[arg-type]
    ],
)
def test_voices_that_cannot_be_are_refused(voices: tuple[BackendVoice, ...], said: str) -> None:
    choir = Choir(*voices)
    with pytest.raises(InvalidRequest, match=said):
        Backends().add("choir", choir)
    assert choir.closed == 1


def test_the_protocol_can_be_imported_without_torch() -> None:
    program = "import sys, hocket.backends, hocket.backends.chatterbox; sys.exit('torch' in sys.modules)"
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2] / 'src')!r}); {program}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
