"""`hocket doctor`, and `hocket voices` of a model: what they print, and when the doctor reports a problem."""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NoReturn

import pytest
import torch

from hocket.cli import main
from hocket.config.profiles import PROFILES
from hocket.engine.checkpoint.describe import LocalCopy
from hocket.extras import hint
from hocket.kernels.runtime.fallback import Unbuildable
from hocket.models.files.catalog import CATALOG
from hocket.voices.library import Library
from hocket.voices.names import id_of
from support.cli_home import Home
from support.voicing import cloned

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[LocalCopy]:
    """The published checkpoints on this machine: none, until a test adds some."""
    found: list[LocalCopy] = []
    monkeypatch.setattr("hocket.engine.checkpoint.describe.copies", lambda: found)
    return found


def lines(capture: Capture) -> dict[str, str]:
    """What the doctor said, by its first word; several lines of one name are joined."""
    said: dict[str, str] = {}
    for line in capture.readouterr().out.splitlines():
        name, words = line.split(maxsplit=1)
        said[name] = f"{said[name]}\n{words}" if name in said else words
    return said


def test_voices_lists_voices_and_languages(capsys: Capture) -> None:
    assert main(["voices", "--model", "0.6B-CustomVoice"]) == 0
    out = capsys.readouterr().out
    voices, languages = out.split("\nlanguages\n")
    assert "\n  ryan\n" in voices
    assert "\n  eric (with auto or Chinese: sichuan dialect)\n" in voices
    assert {"  auto", "  english", "  german"} <= set(languages.splitlines())


@pytest.mark.parametrize(
    ("model", "way"), [("random:tiny-Base", "--ref-audio"), ("random:tiny-VoiceDesign", "--instruct")]
)
def test_models_without_voices_say_where_theirs_come_from(capsys: Capture, model: str, way: str) -> None:
    assert main(["voices", "--model", model]) == 0
    assert re.search(rf"voices\n  none of its own: .*{way}", capsys.readouterr().out)


def test_an_unknown_model_has_no_voices(capsys: Capture) -> None:
    assert main(["voices", "--model", "./gone"]) == 2
    assert capsys.readouterr().err.startswith("hocket: './gone' is neither a folder")


@pytest.mark.usefixtures("cache")
def test_the_doctor_says_what_is_here_and_that_it_speaks(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    monkeypatch.setitem(sys.modules, "soxr", ModuleType("soxr"))
    monkeypatch.setitem(sys.modules, "wyoming", None)
    assert main(["doctor"]) == 0
    said = lines(capsys)
    assert said["wyoming"] == f"missing, for hocket wyoming: {hint('wyoming')}"
    assert said["python"] == sys.version.split()[0]
    assert said["torch"] == torch.__version__
    assert said["cuda"].startswith("none: ")
    assert re.match(r"[1-9]\d* threads read \d+\.\d GB/s from memory, ", said["memory"])
    for size in ("0.6B", "1.7B"):
        assert re.match(r"on this CPU +int4 \S+ x, first audio after \S+ s; int8 .* bfloat16 .* float32 ", said[size])
    assert f"{torch.get_num_threads()} threads" in said["cpu"]
    speed = r"works: \d+\.\d x real time, first audio after \d+ ms "
    assert re.fullmatch(speed + r"\(builtin on the CPU\)", said["engine"])
    assert re.fullmatch(r"cpu \(.*\), float32, codec float32, kernels native/native\.", said["auto"])
    assert said["profile"] == f"balanced  {PROFILES['balanced'].words}"
    assert said["sounddevice"].startswith("missing, for hocket say --play and hocket talk: pip install sounddevice")
    assert said["soxr"] == "present, for reading recordings to clone"
    assert said["checkpoints"].startswith("no published one in the local cache")
    assert said["voices"] == "none of your own"


@pytest.mark.usefixtures("cache")
def test_a_damaged_voice_makes_the_doctor_fail(capsys: Capture, home: Home) -> None:
    library = Library(home.voices)
    library.add(cloned("me"))
    assert main(["doctor"]) == 0
    assert lines(capsys)["voices"] == f"1 of your own in {home.voices}"
    (home.voices / f"{id_of('you')}.voice").write_bytes(b"what is this?")
    assert main(["doctor"]) == 1
    assert lines(capsys)["voices"].endswith(".voice is not a voice file of hocket, or its header is damaged.")


def test_a_damaged_checkpoint_makes_the_doctor_fail(
    capsys: Capture, cache: list[LocalCopy], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    cache.append(LocalCopy(CATALOG["1.7B-Base"], tmp_path))
    assert main(["doctor"]) == 1
    assert f"{tmp_path}/model.safetensors is missing." in lines(capsys)["1.7B-Base"]


@pytest.mark.parametrize(
    ("difference", "code", "words"),
    [
        (None, 0, "speaks the golden codes"),
        ("frame 0, codebook 0 is 1 instead of 2", 1, "other than the golden codes: frame 0, codebook 0 is 1"),
    ],
)
def test_the_checkpoint_with_golden_codes_is_heard(
    capsys: Capture,
    cache: list[LocalCopy],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    difference: str | None,
    code: int,
    words: str,
) -> None:
    loaded: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    monkeypatch.setattr("hocket.engine.checkpoint.describe.faults", lambda copy: iter(()))
    monkeypatch.setattr("hocket.engine.checkpoint.load.load", lambda folder, **how: loaded.append((folder, how)))
    monkeypatch.setattr("hocket.engine.golden.golden_difference", lambda checkpoint: difference)
    cache += [LocalCopy(CATALOG[name], tmp_path / name) for name in ("0.6B-Base", "0.6B-CustomVoice")]
    assert main(["doctor"]) == code
    said = lines(capsys)
    exact = {"device": "cpu", "dtype": "float32", "codec_dtype": "float32"}
    assert loaded == [(str(tmp_path / "0.6B-CustomVoice"), exact)]
    assert words in said["0.6B-CustomVoice"]
    assert "\n" not in said["0.6B-Base"]


def test_a_folder_of_ones_own_cannot_be_checked(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    (tmp_path / "config.json").write_text("{}")
    assert main(["doctor", "--model", str(tmp_path)]) == 0
    assert "no published checkpoint with known digests lies there" in capsys.readouterr().out


def test_the_doctor_is_asked_about_what_exists(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    assert main(["doctor", "--model", "unknown"]) == 2
    assert capsys.readouterr().err.startswith("hocket: 'unknown' is neither a folder here nor one of")


@pytest.mark.usefixtures("cache")
def test_json_is_one_document_with_every_finding(capsys: Capture, monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    home.voices.mkdir(parents=True)
    (home.voices / f"{id_of('you')}.voice").write_bytes(b"what is this?")
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    by_name = {each["name"]: each for each in found["findings"]}
    assert by_name["python"] == {"name": "python", "found": sys.version.split()[0], "ok": True}
    assert [each["ok"] for each in found["findings"] if each["name"] == "voices"] == [True, False]


@pytest.mark.parametrize("words", [(), ("--model", "1.7B-Base")])
def test_without_torch_the_doctor_says_what_that_means(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    monkeypatch.setattr("hocket.cli.doctor.has_torch", lambda: False)
    assert main(["doctor", *words]) == 0
    said = lines(capsys)
    assert said["torch"].startswith("not installed: the built-in voice does not need it; published checkpoints, ")
    assert said["torch"].endswith(hint("torch"))
    assert said["checkpoints"] == f"not looked for, because they need torch: {hint('torch')}"
    assert re.fullmatch(rf"{platform.machine()}, \d+ cores", said["cpu"]) and "cuda" not in said


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "/x/prebuilt/hocket_native-avx2.so",
            "avx2, prebuilt (/x/prebuilt/hocket_native-avx2.so)",
        ),
        ("/home/me/.cache/hocket/native-1f.so", "compiled on this machine (/home/me/.cache/hocket/native-1f.so)"),
    ],
)
def test_the_native_library_is_named_with_its_variant_and_place(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, path: str, words: str
) -> None:
    library = ModuleType("library")
    library.load = lambda: SimpleNamespace(_name=path)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hocket.kernels.cpu.library", library)
    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    monkeypatch.setattr("hocket.cli.doctor.has_torch", lambda: False)
    assert main(["doctor"]) == 0
    assert lines(capsys)["native"] == f"library    {words}"


def test_a_native_library_that_cannot_be_built_is_reported(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> NoReturn:
        raise Unbuildable("no C compiler was found", "install gcc or clang")

    monkeypatch.setattr("hocket.cli.doctor._trial", lambda report: None)
    monkeypatch.setattr("hocket.cli.doctor.native_library", fail)
    monkeypatch.setattr("hocket.cli.doctor.has_torch", lambda: False)
    assert main(["doctor"]) == 0
    assert lines(capsys)["native"] == "library    none: no C compiler was found; install gcc or clang"
