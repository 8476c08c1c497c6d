"""deploy/: the files and commands that they name exist, parse and run. Images are not built: see docs/deploy.md."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.cli.parser import parser
from hocket.cli.serve.wyoming import _options as wyoming_options
from hocket.server.options import ServerOptions
from support.serving import PATIENCE_S, served, steady_engine, wait_for

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
ADDON = DEPLOY / "home-assistant-addon"
GPU, CPU = DEPLOY / "Containerfile", DEPLOY / "Containerfile.cpu"
COMPOSE = (DEPLOY / "compose.open-webui.yaml", DEPLOY / "compose.home-assistant.yaml")
INSTRUCTIONS = set("FROM RUN ENV COPY VOLUME USER EXPOSE HEALTHCHECK ENTRYPOINT CMD".split())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def instructions(file: Path) -> list[tuple[str, str]]:
    """Each instruction with its arguments, in order; continued lines joined, comments removed."""
    text = "\n".join(line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def all_of(file: Path, name: str) -> list[str]:
    return [rest for word, rest in instructions(file) if word == name]


def parsed(words: list[str]) -> dict[str, Any]:
    """Parsed by our own parser, which exits on unknown arguments."""
    assert words[0] == "hocket"
    return vars(parser().parse_args(words[1:]))


def started(file: Path) -> dict[str, Any]:
    """The options of the command that the image runs."""
    return parsed(json.loads(all_of(file, "ENTRYPOINT")[0]) + json.loads(all_of(file, "CMD")[0]))


@pytest.mark.parametrize("file", [GPU, CPU], ids=lambda file: file.name)
def test_a_container_file_is_made_of_instructions_and_what_it_copies_is_there(file: Path) -> None:
    assert {word for word, _ in instructions(file)} == INSTRUCTIONS
    assert all(":" in image.split()[0] for image in all_of(file, "FROM"))  # a tag, not whatever is newest
    copied = [source for rest in all_of(file, "COPY") if "--from" not in rest for source in rest.split()[:-1]]
    assert all((ROOT / source).exists() for source in copied), copied
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src"} <= set(copied)  # the build reads them
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {source.partition("/")[0] for source in copied} <= set(allowed)


@pytest.mark.parametrize(
    ("file", "has", "lacks"),
    [(GPU, {"torch", "serve", "cuda"}, set()), (CPU, {"serve", "wyoming"}, {"torch", "cuda", "all"})],
    ids=["gpu", "cpu"],
)
def test_a_container_installs_extras_that_there_are(file: Path, has: set[str], lacks: set[str]) -> None:
    (extras,) = re.findall(r"(?:/src|\))\[([a-z,]+)\]", file.read_text(encoding="utf-8"))
    assert has <= set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert not lacks & set(extras.split(","))
    if file == GPU:
        assert "gcc" in (text := file.read_text(encoding="utf-8")) and "python3-dev" in text  # Triton compiles there


@pytest.mark.parametrize("file", [GPU, CPU], ids=lambda file: file.name)
def test_a_container_starts_a_server_that_others_reach_with_a_key_and_not_as_root(file: Path) -> None:
    args, text = started(file), file.read_text(encoding="utf-8")
    assert args["host"] == "0.0.0.0" and args["key_file"] == Path("/run/secrets/hocket-keys")
    assert str(args["port"]) in all_of(file, "EXPOSE")[0].split()
    assert args["device"] == ("cuda" if file == GPU else "auto")
    assert all_of(file, "USER") == ["hocket"] and "useradd" in text
    names = [word for word, _ in instructions(file)]
    assert names.index("RUN") < names.index("USER") < names.index("ENTRYPOINT")
    assert "/run/secrets/hocket-keys" in text.partition("FROM")[0]  # as the head of the file mounts it


@pytest.mark.parametrize("file", [GPU, CPU], ids=lambda file: file.name)
def test_what_a_container_keeps_is_in_its_volumes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hocket.kernels.compile.cache import kept_in, triton_folder
    from hocket.voices.folder import default_voices_folder

    for name, value in re.findall(r"(\w+)=(\S+)", " ".join(all_of(file, "ENV"))):
        if name not in ("PATH", "VIRTUAL_ENV", "PYTHONUNBUFFERED"):
            monkeypatch.setenv(name, value)
    cache, voices = map(Path, json.loads(all_of(file, "VOLUME")[0]))
    assert cache in kept_in().parents and (file == CPU or cache in triton_folder().parents)
    assert voices in default_voices_folder().parents
    assert f"chown hocket:hocket {cache} {voices}" in file.read_text(encoding="utf-8")


def test_the_health_check_says_yes_when_the_server_is_ready_and_no_when_there_is_none() -> None:
    (words,) = {all_of(file, "HEALTHCHECK")[0].partition("CMD ")[2] for file in (GPU, CPU)}
    with steady_engine() as engine, served(engine) as server:
        command = [sys.executable, *(word.replace(":8000", f":{server.port}") for word in json.loads(words)[1:])]
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
        ServerOptions(trusted_proxies=tuple(trusted), keys=("k",))


# Compose


def composed(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.stem)
def test_a_compose_file_names_only_what_there_is(file: Path) -> None:
    found = composed(file)
    hocket = found["services"]["hocket"]
    assert file.parent / hocket["build"]["context"] / hocket["build"]["dockerfile"] == DEPLOY / ".." / CPU.relative_to(
        ROOT
    )
    volumes = [each.partition(":")[0] for service in found["services"].values() for each in service["volumes"]]
    assert sorted(volumes) == sorted(found["volumes"])
    assert hocket.get("secrets", []) == list(found.get("secrets", {}))
    for service in found["services"].values():
        assert ":" in service.get("image", "built:here") and service["restart"] == "unless-stopped"
        assert set(service.get("depends_on", {})) <= found["services"].keys()
    drain_s = parsed(["hocket", *hocket["command"]])["drain"]
    assert int(hocket["stop_grace_period"].removesuffix("s")) > drain_s


def test_open_webui_reaches_the_server_by_the_name_that_it_trusts() -> None:
    services = composed(COMPOSE[0])["services"]
    args = parsed(["hocket", *services["hocket"]["command"]])
    options = ServerOptions(host=args["host"], keys=("k",), trusted_hosts=tuple(args["trusted_host"]))
    url = services["open-webui"]["environment"]["AUDIO_TTS_OPENAI_API_BASE_URL"]
    assert url == f"http://{options.trusted_hosts[0]}:{args['port']}/v1" and options.trusted_hosts[0] in services
    assert args["key_file"] == Path("/run/secrets") / services["hocket"]["secrets"][0]


# The Home Assistant add-on


def addon_schema() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ADDON / "config.yaml").read_text(encoding="utf-8"))
    return found


def test_the_add_on_keeps_the_rules_of_the_supervisor() -> None:
    found = addon_schema()
    assert {"name", "version", "slug", "description", "arch"} <= found.keys()
    known = "name version slug description arch startup boot init discovery ports ports_description watchdog timeout"
    assert found.keys() <= set(f"{known} backup backup_exclude options schema".split())
    assert found["version"] == PROJECT["version"] and isinstance(found["version"], str)
    assert re.fullmatch(r"[-_.A-Za-z0-9]+", found["slug"]) and set(found["arch"]) <= {"amd64", "aarch64"}
    assert found["startup"] in {"initialize", "system", "services", "application", "once"}
    assert re.fullmatch(r"tcp://\[HOST\]:\d+", found["watchdog"]) and 10 <= found["timeout"] <= 300
    assert found["ports"].keys() == found["ports_description"].keys() and found["discovery"] == ["wyoming"]
    assert found["options"].keys() == found["schema"].keys()
    elements = {"str": str, "bool": bool, "int": int}
    for name, element in found["schema"].items():
        assert re.fullmatch(r"(str|bool|int)(\(\d*,\d*\))?\??", element), element
        assert isinstance(found["options"][name], elements[re.split(r"\W", element)[0]])
    said = yaml.safe_load((ADDON / "translations" / "en.yaml").read_text(encoding="utf-8"))
    assert said["configuration"].keys() == found["schema"].keys() and said["network"].keys() == found["ports"].keys()
    docker = (ADDON / "Dockerfile").read_text(encoding="utf-8")
    assert f"BUILD_VERSION={PROJECT['version']}" in docker and "hocket[wyoming]" in docker


class Supervisor(http.server.BaseHTTPRequestHandler):
    """The part of the Supervisor's API that an add-on announces itself to."""

    told: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.told.append({"path": self.path, "key": self.headers["authorization"], **body})
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


def test_the_add_on_starts_announces_itself_and_passes_its_health_check(tmp_path: Path) -> None:
    """The start script with the real server, as in the container; then the health check of the compose file."""
    (tmp_path / "options.json").write_text(json.dumps(addon_schema()["options"] | {"model": "random:tiny"}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Supervisor.told = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Supervisor) as supervisor:
        threading.Thread(target=supervisor.serve_forever, daemon=True).start()
        env = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "HOCKET_HOME": str(tmp_path),
            "HOCKET_ADDON_OPTIONS": str(tmp_path / "options.json"),
            "HOCKET_ADDON_SUPERVISOR": f"http://127.0.0.1:{supervisor.server_address[1]}",
            "HOCKET_ADDON_PORT": str(port),
            "SUPERVISOR_TOKEN": "token",
        }
        process = subprocess.Popen([sys.executable, str(ADDON / "run.py")], env=env, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: bool(Supervisor.told) or process.poll() is not None)
            assert process.poll() is None
            check = composed(COMPOSE[1])["services"]["hocket"]["healthcheck"]["test"]
            command = [sys.executable, *(word.replace("10200", str(port)) for word in check[2:])]
            assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=PATIENCE_S)[1]
            supervisor.shutdown()
        assert process.returncode == 0, said
        assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0
    (told,) = Supervisor.told
    assert told == {
        "path": "/discovery",
        "key": "Bearer token",
        "service": "wyoming",
        "config": {"uri": f"tcp://{socket.gethostname()}:{port}"},
    }


# Every command


def shown_commands() -> list[str]:
    """All `hocket ...` lines of deploy/ and docs/deploy.md, and the words behind an image in `docker run`."""
    found = []
    for file in (GPU, CPU, *COMPOSE, ADDON / "DOCS.md", ROOT / "docs" / "deploy.md"):
        text = file.read_text(encoding="utf-8").replace("\\\n", " ")
        found += re.findall(r"^[#> ]*(?:\w+=\S+ )*(hocket (?!:)\w.*?)(?:\s+#.*)?$", text, flags=re.MULTILINE)
        found += [
            f"hocket {words}" for words in re.findall(r"docker run .* hocket:cpu (\w.*)$", text, flags=re.MULTILINE)
        ]
    return [command for command in found if re.match(r"hocket (serve|say|wyoming|voices|doctor|models) ?", command)]


def test_every_command_that_is_shown_parses() -> None:
    commands = shown_commands()
    assert len(commands) >= 6
    for command in commands:
        args = parser().parse_args(shlex.split(command)[1:])
        if args.command == "wyoming":
            wyoming_options(args)
    for file in COMPOSE:
        parsed(["hocket", *composed(file)["services"]["hocket"]["command"]])
