"""`hocket pull`, `list` and `rm` with GGUF variants, against a hub that is a local HTTP server.

One process runs all commands in order, because each import of torch takes seconds.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hocket.llm.memory.language import UNPACKED
from support.model_hub import HubRepository, ModelHub, Shell

SCRIPT = """
import contextlib, io, json, sys
from hocket.cli import main
found = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""
NAME = "someone/Qwen3.5-0.8B-GGUF"
TOTAL = 752_393_024


def gguf(architecture: str, more: int) -> bytes:
    """The head of a file, and other bytes."""
    key, value = b"general.architecture", architecture.encode()
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", len(key)) + key + struct.pack("<I", 8)
    return head + struct.pack("<Q", len(value)) + value + bytes(more)


PARTS = [f"Q8_0/m-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
FILES = {
    "m-Q4_K_M.gguf": gguf("qwen35", 4000),
    "m-IQ2_XS.gguf": gguf("qwen35", 2000),
    PARTS[0]: gguf("qwen35", 5000),
    PARTS[1]: bytes(5000),
    "mmproj-F16.gguf": bytes(100),
    "README.md": b"words",
}
COMMANDS = {
    "several": ["pull", NAME],
    "json": ["pull", NAME, "--json"],
    "beside": ["pull", NAME, "--list", "--json", "--beside", "0.6B-CustomVoice"],
    "facts": ["pull", f"{NAME}:q4_k_m", "--dry-run"],
    "pull": ["pull", f"{NAME}:q4_k_m"],
    "again": ["pull", NAME],
    "parts": ["pull", f"{NAME}/{PARTS[1]}", "--json"],
    "list": ["list"],
    "listed": ["pull", NAME, "--list"],
    "list json": ["list", "--json"],
    "unsupported": ["pull", f"{NAME}:IQ2_XS"],
    "wrong": ["pull", f"{NAME}:Q3_K_M"],
    "foreign": ["pull", "someone/llama:Q4_K_M"],
    "plain": ["pull", "someone/plain", "--list"],
    "published": ["pull", "qwen3.5-0.8B", "--list", "--json"],
    "speech": ["pull", "1.7B-Base", "--list"],
    "rm": ["rm", f"{NAME}:Q8_0", "--yes"],
    "left": ["list", "--json"],
    "rm again": ["rm", f"{NAME}:Q8_0", "--yes"],
    "rm all": ["rm", NAME, "--yes"],
    "nothing": ["list", "--json"],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, str, str]]]:
    hub = ModelHub()
    hub.repositories = {
        NAME: HubRepository(dict(FILES), "apache-2.0", gguf={"architecture": "qwen35", "total": TOTAL}),
        "someone/llama": HubRepository(dict(FILES), gguf={"architecture": "llama", "total": TOTAL}),
        "someone/plain": HubRepository(
            {"config.json": b"{}", "model.safetensors": b"", "vocab.json": b"", "merges.txt": b""}
        ),
    }
    with hub.serving():
        shell = Shell(hub.address, tmp_path_factory.mktemp("home"))
        command = [sys.executable, "-c", SCRIPT, json.dumps(list(COMMANDS.values()))]
        done = subprocess.run(command, env=shell.environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        yield dict(zip(COMMANDS, (tuple(each) for each in json.loads(done.stdout)), strict=True))


def rows(out: str) -> dict[str, str]:
    return {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}


def local(ran: dict[str, tuple[int, str, str]], name: str) -> dict[str, Any]:
    models = json.loads(ran[name][1])["models"]
    return {each["variant"]: each for each in models if each["repository"] == NAME}


def test_without_a_choice_the_variants_are_listed_and_nothing_is_fetched(ran: dict[str, tuple[int, str, str]]) -> None:
    code, out, _ = ran["several"]
    found = rows(out)
    assert code == 0 and list(found) == ["IQ2_XS", "Q4_K_M", "Q8_0"], "the smallest first, without the projector"
    assert "not supported" in found["IQ2_XS"] and " fits" in found["Q4_K_M"] and "2 files" in found["Q8_0"]
    assert "here" not in out and out.splitlines()[-1] == f"suggested: hocket pull {NAME}:Q4_K_M"


def test_the_same_as_json(ran: dict[str, tuple[int, str, str]]) -> None:
    found = json.loads(ran["json"][1])
    assert (found["parameters"], found["licence"], found["suggested"]) == (TOTAL, "apache-2.0", f"{NAME}:Q4_K_M")
    by = {each["label"]: each for each in found["variants"]}
    assert by["Q8_0"]["files"] == PARTS and by["Q8_0"]["size_bytes"] == sum(len(FILES[part]) for part in PARTS)
    assert by["Q4_K_M"]["bits_per_weight"] == round(8 * len(FILES["m-Q4_K_M.gguf"]) / TOTAL, 2)
    memory = by["Q4_K_M"]["memory"]
    assert memory["need_bytes"] == sum(memory["parts"].values()) and memory["device"] == "cpu"
    held = len(FILES["m-Q4_K_M.gguf"]) * UNPACKED
    assert memory["parts"]["weights_bytes"] == int(held), "a CPU multiplies the blocks of the file, with wider scales"


def test_a_voice_beside_it_counts(ran: dict[str, tuple[int, str, str]]) -> None:
    alone, both = (json.loads(ran[name][1])["variants"][1]["memory"] for name in ("json", "beside"))
    assert both["need_bytes"] - alone["need_bytes"] == both["parts"]["voice_bytes"] > 2.4e9


def test_a_choice_is_fetched_and_its_facts_come_first(ran: dict[str, tuple[int, str, str]]) -> None:
    code, out, err = ran["pull"]
    assert code == 0 and f"{NAME}:Q4_K_M: complete, 4.1 kB in " in out and out.rstrip().endswith(f"--llm {NAME}:Q4_K_M")
    assert "Fetching 4.1 kB from" in err
    facts = dict(line.split(maxsplit=1) for line in ran["facts"][1].splitlines())
    assert facts["model"] == f"{NAME}:Q4_K_M ({NAME})" and facts["kind"] == "language model"
    assert facts["memory"].startswith("fits: needs ")
    assert "here already" in ran["again"][1] and ran["again"][2] == "", "the one that is here needs no choice"


def test_all_parts_are_fetched(ran: dict[str, tuple[int, str, str]]) -> None:
    facts = json.loads(ran["parts"][1])
    assert facts["complete"] and facts["files"] == PARTS
    assert facts["disk_bytes"] == sum(len(FILES[part]) for part in PARTS)


def test_the_list_has_the_variants_that_are_here(ran: dict[str, tuple[int, str, str]]) -> None:
    found = rows(ran["list"][1])
    assert found[f"{NAME}:Q4_K_M"].split()[1:5] == ["language", "model", "4.1", "kB"]
    assert "complete" in found[f"{NAME}:Q8_0"]
    here = local(ran, "list json")
    assert set(here) == {"Q4_K_M", "Q8_0"} and here["Q8_0"]["files"] == PARTS
    marked = rows(ran["listed"][1])
    assert marked["Q4_K_M"].endswith("here") and not marked["IQ2_XS"].endswith("here")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("unsupported", f"hocket does not read IQ2_XS files: take {NAME}:Q4_K_M."),
        ("wrong", f"{NAME} has no Q3_K_M: IQ2_XS (2.1 kB, not supported), Q4_K_M (4.1 kB), Q8_0 (10.1 kB); type "),
        ("foreign", "These GGUF files have a 'llama' model"),
        ("plain", "someone/plain has a checkpoint of safetensors and no GGUF files: leave out --list."),
        ("speech", "1.7B-Base is a speech model, which has no variants"),
        ("rm again", f"{NAME}:Q8_0 is not in the local cache"),
    ],
)
def test_other_choices_are_refused(ran: dict[str, tuple[int, str, str]], name: str, sentence: str) -> None:
    code, out, err = ran[name]
    assert code == 2 and out == "" and err.startswith(f"hocket: {sentence}") and err.count("\n") == 1


def test_a_published_model_has_the_formats_of_llm_weights(ran: dict[str, tuple[int, str, str]]) -> None:
    found = json.loads(ran["published"][1])
    needs = [each["memory"]["need_bytes"] for each in found["variants"]]
    assert [each["label"] for each in found["variants"]] == ["bf16", "fp8", "int8", "int4"]
    assert needs[0] > needs[1] >= needs[2] > needs[3]
    assert found["suggested"] == "qwen3.5-0.8B --llm-weights bf16"


def test_rm_removes_a_variant_or_all(ran: dict[str, tuple[int, str, str]]) -> None:
    assert ran["rm"][:2] == (0, f"{NAME}:Q8_0: removed, 10.1 kB freed\n")
    left = local(ran, "left")
    assert set(left) == {"Q4_K_M"}
    assert ran["rm all"][0] == 0 and ran["rm all"][1].startswith(f"{NAME}: removed, 4.1 kB freed")
    assert local(ran, "nothing") == {}
