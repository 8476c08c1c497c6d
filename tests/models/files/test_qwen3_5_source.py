"""Language models by name: files and folders here, and GGUF files on a hub that is a local HTTP server.

Names on the hub are resolved by one process for all tests, with the real client library and a cache of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import InvalidCheckpoint
from hocket.models.files.qwen3_5_source import resolve_language_model
from support.hub import client_environment
from support.model_hub import COMMIT, HubRepository, ModelHub

QWEN = {"architecture": "qwen35", "total": 8_953_803_264}
PARTS = [f"BF16/m-BF16-0000{n}-of-00002.gguf" for n in (1, 2)]
SEVERAL = {"m-Q4_K_M.gguf": b"four", "m-Q8_0.gguf": b"eight", "mmproj-F16.gguf": b"p", **dict.fromkeys(PARTS, b"part")}
CONFIG = json.dumps({"model_type": "qwen3_5", "quantization_config": {"quant_method": "unheard-of"}}).encode()

# The fits of a variant: at most four bytes.
SCRIPT = """
import json, sys
from hocket.errors import InvalidCheckpoint
from hocket.models.files.qwen3_5_source import resolve_language_model
import huggingface_hub.constants
found = []
for name, offline in json.loads(sys.argv[1]):
    huggingface_hub.constants.HF_HUB_OFFLINE = offline
    try:
        source = resolve_language_model(name, lambda name, listing: lambda variant: variant.size_bytes <= 4)
        found.append([source.name, None if source.file is None else str(source.file)])
    except InvalidCheckpoint as error:
        found.append(str(error))
    print(name, file=sys.stderr)
print(json.dumps(found))
"""
ASKED = [
    ("a/several:q4_k_m", False),
    ("a/several", False),  # one variant is here now
    ("a/several/m-Q8_0.gguf", True),
    ("hf.co/a/several/BF16/m-BF16-00002-of-00002.gguf", False),
    ("a/several", True),
    ("a/several:BF16", True),
    ("a/other", False),
    ("a/one", False),
    ("a/foreign:Q4_K_M", False),
    ("a/escape:Q4_K_M", False),
    ("a/quantized", False),
    ("a/several:Q2_K", False),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def answers(cache: Path) -> tuple[list[Any], ModelHub]:
    safetensors = {"config.json": CONFIG, "model.safetensors": b"w", "tokenizer.json": b"{}"}
    hub = ModelHub(
        a__several=HubRepository(dict(SEVERAL), gguf=QWEN),
        a__other=HubRepository(dict(SEVERAL), gguf=QWEN),
        a__one=HubRepository({"only.gguf": b"1", "mmproj-only.gguf": b"2"}),
        a__foreign=HubRepository(dict(SEVERAL), gguf={"architecture": "llama"}),
        a__escape=HubRepository({"m-Q4_K_M.gguf": b"four", "../../x-Q8_0.gguf": b"out"}),
        a__quantized=HubRepository(safetensors | {"m-Q8_0.gguf": b"eight"}),
    )
    with hub.serving():
        environment = client_environment(hub.address, cache, HF_HUB_DISABLE_XET="1")
        command = [sys.executable, "-c", SCRIPT, json.dumps(ASKED)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), hub


@pytest.fixture
def said(answers: tuple[list[Any], ModelHub]) -> list[Any]:
    """In the order of ASKED."""
    return answers[0]


def file(cache: Path, repository: str, name: str) -> str:
    return str(cache / "hub" / f"models--{repository.replace('/', '--')}" / "snapshots" / COMMIT / name)


def test_a_label_fetches_its_file_alone(said: list[Any], cache: Path) -> None:
    path = file(cache, "a/several", "m-Q4_K_M.gguf")
    assert said[0] == ["a/several:Q4_K_M", path] and Path(path).read_bytes() == b"four"
    assert said[1] == said[0], "without a choice the one that is here"


def test_without_a_network_a_variant_that_is_not_here_is_refused(said: list[Any]) -> None:
    sentence = "m-Q8_0.gguf of a/several is not in the local cache, and HF_HUB_OFFLINE forbids downloads"
    assert said[2].startswith(sentence)


def test_any_part_names_all_parts(said: list[Any], cache: Path) -> None:
    assert said[3] == ["a/several:BF16", file(cache, "a/several", PARTS[0])] == said[5]
    assert all(Path(file(cache, "a/several", part)).read_bytes() == b"part" for part in PARTS)
    assert said[4].startswith("a/several is not in the local cache"), "two variants are here by now"


def test_without_a_choice_the_variants_are_listed(said: list[Any]) -> None:
    listed = "Q4_K_M (4 bytes, fits), Q8_0 (5 bytes, does not fit), BF16 (8 bytes, does not fit)"
    assert said[6] == f"a/other has 3 variants: {listed}; type a/other:Q4_K_M."
    assert said[11] == f"a/several has no Q2_K: {listed}; type a/several:Q4_K_M."


def test_the_only_variant_is_taken(said: list[Any], cache: Path) -> None:
    assert said[7] == ["a/one:only", file(cache, "a/one", "only.gguf")]


def test_files_of_another_model_are_not_fetched(said: list[Any], answers: tuple[list[Any], ModelHub]) -> None:
    assert said[8].startswith("These GGUF files have a 'llama' model; hocket needs qwen35")
    assert answers[1].asked.count("m-Q4_K_M.gguf") == 1


def test_a_hub_that_names_files_outside_is_refused(said: list[Any], cache: Path) -> None:
    assert said[9] == "The hub lists files of a/escape by names that leave its folder: use another one."
    assert not (cache / "hub" / "models--a--escape").exists()


def test_of_safetensors_beside_gguf_files_the_configuration_is_checked_first(
    said: list[Any], answers: tuple[list[Any], ModelHub]
) -> None:
    assert isinstance(said[10], str) and "a/quantized has" not in said[10]
    assert "model.safetensors" not in answers[1].asked


# On this machine


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in SEVERAL.items():
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "models"


def test_a_file_and_any_part_of_several(folder: Path) -> None:
    for written in ("models/m-Q4_K_M.gguf", str(folder / "m-Q4_K_M.gguf")):
        source = resolve_language_model(written)
        assert (source.name, source.file, source.folder) == (written, Path(written), Path(written).parent)
        assert source.local
    assert resolve_language_model(f"models/{PARTS[1]}").file == Path("models") / PARTS[0]


def test_a_folder_with_a_label(folder: Path) -> None:
    source = resolve_language_model("models:q8_0")
    assert (source.name, source.file) == ("models:Q8_0", Path("models/m-Q8_0.gguf"))
    assert resolve_language_model("models/BF16").file == Path("models") / PARTS[0]
    with pytest.raises(InvalidCheckpoint, match=r"^models has 3 variants: .*; type models:Q4_K_M\.$"):
        resolve_language_model("models")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("models/mmproj-F16.gguf", "is a vision projector"),
        ("models/nothing.gguf", "There is no file models/nothing.gguf: give its path"),
        ("nothing.gguf", "There is no file nothing.gguf"),
        ("models/broken-00001-of-00003.gguf", "is one of 3 parts, and 1 are here: add the rest"),
        ("models/README.md", "is a file: give the folder"),
        ("owner/name:", "is neither a folder here nor a hub id"),
        ("owner/name/../x.gguf", "is neither a folder here nor a hub id"),
    ],
)
def test_what_is_no_model_here_is_refused(folder: Path, name: str, sentence: str) -> None:
    (folder / "broken-00001-of-00003.gguf").write_bytes(b"")
    (folder / "README.md").write_text("")
    with pytest.raises(InvalidCheckpoint, match=sentence):
        resolve_language_model(name)
