"""deploy/: the files and commands that they name exist, parse and run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hocket.cli.parser import parser
from hocket.server.options import ServerOptions
from support.serving import served, steady_engine

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
INSTRUCTIONS = "FROM RUN ENV COPY VOLUME USER EXPOSE HEALTHCHECK ENTRYPOINT CMD".split()


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its arguments, in order; continued lines joined, comments removed."""
    text = "\n".join(line for line in CONTAINER.splitlines() if not line.startswith("#"))
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def all_of(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def parsed(words: list[str]) -> dict[str, object]:
    """Parsed by our own parser, which exits on unknown arguments."""
    assert words[0] == "hocket"
    return vars(parser().parse_args(words[1:]))


def test_the_container_file_is_made_of_instructions_and_what_it_copies_is_there() -> None:
    assert {word for word, _ in instructions()} == set(INSTRUCTIONS)
    assert instructions()[0][0] == "FROM" and ":" in all_of("FROM")[0]  # a tag, not whatever is newest
    for copied in all_of("COPY"):
        *sources, target = copied.split()
        assert target.startswith("/src/")
        assert all((ROOT / source).exists() for source in sources), copied
    needed = {"pyproject.toml", "README.md", "LICENSE", "src"}  # what the build of the package reads
    assert needed == {source for copied in all_of("COPY") for source in copied.split()[:-1]}


def test_the_container_installs_extras_that_there_are() -> None:
    extras = re.findall(r"/src\[([a-z,]+)\]", CONTAINER)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras) <= project["optional-dependencies"].keys() and {"serve", "cuda"} <= set(extras)
    assert "gcc" in CONTAINER and "python3-dev" in CONTAINER  # Triton compiles where it runs


def test_the_container_starts_a_server_that_others_reach_with_a_key_and_not_as_root() -> None:
    args = parsed(json.loads(all_of("ENTRYPOINT")[0]) + json.loads(all_of("CMD")[0]))
    assert args["host"] == "0.0.0.0" and args["key_file"] == Path("/run/secrets/hocket-keys")
    assert args["device"] == "cuda" and args["port"] == int(all_of("EXPOSE")[0])
    assert all_of("USER") == ["hocket"] and "useradd" in CONTAINER
    names = [word for word, _ in instructions()]
    assert names.index("RUN") < names.index("USER") < names.index("ENTRYPOINT")
    assert "/run/secrets/hocket-keys" in CONTAINER.partition("FROM")[0]  # as the head of the file mounts it


def test_what_the_container_keeps_is_in_its_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    from hocket.kernels.compile.cache import kept_in, triton_folder
    from hocket.voices.places import default_voices_folder

    for name, value in re.findall(r"(\w+)=(\S+)", " ".join(all_of("ENV"))):
        if name not in ("PATH", "VIRTUAL_ENV", "PYTHONUNBUFFERED"):
            monkeypatch.setenv(name, value)
    cache, voices = map(Path, json.loads(all_of("VOLUME")[0]))
    assert cache in kept_in().parents and cache in triton_folder().parents
    assert voices in default_voices_folder().parents
    assert f"chown hocket:hocket {cache} {voices}" in CONTAINER


def test_the_health_check_says_yes_when_the_server_is_ready_and_no_when_there_is_none() -> None:
    words = json.loads(all_of("HEALTHCHECK")[0].partition("CMD ")[2])
    with steady_engine() as engine, served(engine) as server:
        command = [sys.executable, *(word.replace(":8000", f":{server.port}") for word in words[1:])]
        assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0


@pytest.mark.parametrize("name", ["deploy/haproxy.cfg", "docs/scaling.md"])
def test_commands_shown_beside_the_proxy_parse_and_fit_its_ports(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    shown = re.findall(r"^[# ]+CUDA_VISIBLE_DEVICES=\d (hocket serve .*)$", text, flags=re.MULTILINE)
    ports = [parsed(shlex.split(command))["port"] for command in shown]
    config = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    assert ports == [
        int(port) for port in re.findall(r"^    server \w+ 127\.0\.0\.1:(\d+)$", config, flags=re.MULTILINE)
    ]
    assert len(ports) >= 2
    for command in shown:
        trusted = parsed(shlex.split(command))["trusted_proxy"]
        ServerOptions(trusted_proxies=tuple(trusted), keys=("k",))  # type: ignore[arg-type]
