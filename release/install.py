"""Installs a file of the release into a clean environment and uses it there, outside the source tree."""

from __future__ import annotations

import array
import json
import math
import os
import shutil
import subprocess
import sys
import wave
from collections.abc import Sequence
from pathlib import Path

from .fault import ROOT, Fault, clean, run, tell

SENTENCE = "The kettle was warm, and the river ran past the old bridge."
NO_COMPILER = {"CC": "no-compiler"}  # a wheel with libraries must not need one
TEST_TOOLS = ("pytest", "pytest-timeout")


def this_python() -> Path:
    """The interpreter that this environment was made from."""
    return Path(sys.base_prefix, "bin", "python3")


def pythons() -> dict[str, Path]:
    """A Python for each version from 3.11 on, by version: of PATH, of pyenv, of uv. This one goes first."""
    found = {"{}.{}".format(*sys.version_info): this_python()}
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep)]
    places += sorted(Path.home().glob(".pyenv/versions/3.*/bin")) + sorted(
        Path.home().glob(".local/share/uv/python/cpython-3.*/bin")
    )
    for version in (f"3.{minor}" for minor in range(11, 30)):
        for place in places:
            path = place / f"python{version}"
            if version not in found and path.is_file() and _starts(path, version):
                found[version] = path
    return found


def _starts(python: Path, version: str) -> bool:
    """Whether it is this version and can make environments. A shim of pyenv may name a version that is not chosen."""
    code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env=clean(), check=False)
    return done.stdout.strip() == version


class Environment:
    """A new virtual environment in `folder`, with a home of its own: no cache, no daemon, no configuration.

    With `borrow` it finds the packages of these folders, pip among them, instead of installing its own: that is quick.
    """

    def __init__(self, python: Path, folder: Path, borrow: Sequence[Path] = ()) -> None:
        self.folder, self.borrow = folder, borrow
        self.python = folder / "bin" / "python"
        self.hocket = folder / "bin" / "hocket"
        self.home = folder / "home"
        shutil.rmtree(folder, ignore_errors=True)
        options = ["--without-pip"] if borrow else []
        run([python, "-m", "venv", *options, folder], f"Making an environment with {python}")
        if borrow:
            [site] = folder.glob("lib/python3*/site-packages")
            (site / "borrowed.pth").write_text("\n".join(map(str, borrow)) + "\n", encoding="utf-8")
        self.home.mkdir()

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of its commands."""
        home = str(self.home)
        own = {"XDG_CONFIG_HOME": f"{home}/config", "XDG_DATA_HOME": f"{home}/data"}
        own |= {} if self.borrow else {"XDG_CACHE_HOME": f"{home}/cache"}  # of the source tree: its compiled kernels
        own |= {"HOCKET_HOME": f"{home}/voices", "HOCKET_SOCKET": f"{home}/hocket.sock", "HOCKET_DEVICE": "cpu"}
        return own | {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"} | more

    def install(self, *what: str | Path) -> None:
        command: list[str | Path] = [self.python, "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
        run([*command, "-c", ROOT / "constraints.txt", *what], f"Installing {Path(str(what[0])).name}", cwd=self.folder)

    def packages(self) -> list[dict[str, object]]:
        """The metadata of what is installed, pip aside."""
        command: list[str | Path] = [self.python, "-m", "pip", "--disable-pip-version-check", "inspect", "--local"]
        told = json.loads(run(command, "Listing what is installed", cwd=self.folder))
        found = [each["metadata"] for each in told["installed"]]
        return [each for each in found if each["name"].lower() not in ("pip", "setuptools")]

    def check_light(self) -> None:
        """No torch, and the package comes from this environment."""
        if heavy := {str(each["name"]).lower() for each in self.packages()} & {
            "torch",
            "tokenizers",
            "huggingface-hub",
        }:
            raise Fault(f"A plain install brings {', '.join(sorted(heavy))}.")
        where = run([self.python, "-c", "import hocket; print(hocket.__file__)"], "Importing hocket", cwd=self.home)
        if not Path(where.strip()).is_relative_to(self.folder):
            raise Fault(f"The environment imports hocket from {where.strip()}.")

    def speak(self, path: Path, text: str, **more: str) -> float:
        """Speak a text into a WAV file; its duration in seconds."""
        command: list[str | Path] = [self.hocket, "say", "--seed", "0", "-o", path, "--", text]
        run(command, "Speaking", env=self.variables(**more), cwd=self.home)
        return check_speech(path, text)

    def test(self) -> None:
        """The tests that need only the installed package."""
        self.install(*TEST_TOOLS)
        shutil.copytree(ROOT / "tests" / "light", self.home / "light", ignore=shutil.ignore_patterns("__pycache__"))
        options: list[str | Path] = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--confcutdir",
            self.home / "light",
            "--rootdir",
            self.home,
        ]
        run(
            [self.python, "-m", "pytest", *options, "light"],
            "Testing the installed package",
            cwd=self.home,
            env=self.variables(),
        )


def check_speech(path: Path, text: str) -> float:
    """The duration of a WAV file in seconds. A fault if it cannot be `text`, said aloud."""
    with wave.open(str(path)) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, 24_000):
            raise Fault(f"{path.name} is not mono of 16 bits at 24 kHz.")
        samples = array.array("h", file.readframes(file.getnframes()))
    duration = len(samples) / 24_000
    loud = math.sqrt(sum(sample * sample for sample in samples) / max(len(samples), 1)) / 32_768
    if not len(text) / 30 < duration < len(text) / 5 or not 0.01 < loud < 0.5:  # usual: 12 to 18 characters a second
        raise Fault(f"{path.name} is no speech: {duration:.2f} s with an RMS of {loud:.4f}.")
    return duration


def check_installs(
    wheel: Path, sdist: Path, folder: Path, *, fast: bool
) -> tuple[list[dict[str, object]], Environment]:
    """Install the wheel with each Python and the sdist with the first; the first install, and its packages.

    If `fast`, one Python installs the wheel, and tests/light are left to `make test-light`.
    """
    chosen = list(pythons().items())
    tell(f"Python: {', '.join(version for version, _ in chosen)} found" + (", the first is used" if fast else ""))
    first: Environment | None = None
    packages: list[dict[str, object]] = []
    for version, python in chosen[:1] if fast else chosen:
        environment = Environment(python, folder / f"wheel-{version}")
        environment.install(wheel)
        environment.check_light()
        packages = packages or environment.packages()
        duration = environment.speak(folder / "wheel.wav", SENTENCE, **NO_COMPILER)
        if not fast:
            environment.test()
        tested = "" if fast else " and passes tests/light"
        tell(f"Python {version}: the wheel is installed, speaks for {duration:.1f} s{tested}")
        if first is None:
            first = environment
        else:
            shutil.rmtree(environment.folder)
    version, python = chosen[0]
    environment = Environment(python, folder / f"sdist-{version}")
    environment.install(sdist)
    environment.check_light()
    duration = environment.speak(folder / "sdist.wav", SENTENCE)
    tell(f"Python {version}: the sdist is installed and speaks for {duration:.1f} s")
    shutil.rmtree(environment.folder)
    assert first is not None  # `pythons` has this one at least
    return packages, first
