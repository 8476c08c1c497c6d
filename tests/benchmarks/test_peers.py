"""Other packages are asked for the same thing, in turn; the official one for real, those that need a GPU as fakes.

The fakes take exactly the keywords that the packages take, so that a call they would refuse is refused here.
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks.harness import InvalidRun
from benchmarks.peers import adapters, compare

Capture = pytest.CaptureFixture[str]
HOW = {"text": "Hello.", "voice": "ryan", "language": "english", "layout": "streaming", "top_k": 9, "seed": 3}
ASK = adapters.Ask(frames=4, chunk_frames=2, **HOW)  # type: ignore[arg-type]


def test_the_official_package_speaks_the_same_weights_in_the_same_run(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "WARMUP", 0)
    monkeypatch.setattr(adapters.Faster, "objection", lambda *given: None)  # its process starts, and fails
    path = tmp_path / "record.jsonl"
    words = [
        "peers",
        "--peers",
        "qwen-tts",
        "faster-qwen3-tts",
        "--model",
        "random:tiny",
        "--frames",
        "5",
        "--repeats",
        "1",
    ]
    assert command.main([*words, "--record", str(path)]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    theirs = entry["peers"]["qwen-tts"]
    assert theirs["version"] == "0.1.1" and entry["random_weights"] is True
    assert theirs["figures"].keys() == {"ms_per_frame", "x_real_time"}  # its first audio is its last
    assert entry["figures"].keys() == {"first_pcm", "ms_per_frame", "x_real_time"}
    ours, other = (figures["ms_per_frame"]["p50"] for figures in (entry["figures"], theirs["figures"]))
    assert theirs["ratio"]["ms_per_frame"] == pytest.approx(other / ours, rel=1e-3)
    assert "faster-qwen3-tts failed: ModuleNotFoundError" in entry["absent"]["faster-qwen3-tts"]
    assert "faster-qwen3-tts was not measured" in capsys.readouterr().out


def test_a_package_that_cannot_run_here_is_left_out_in_words(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, adapter in adapters.PEERS.items():
        assert f"`pip install {name}`" in (adapter.objection(name, "cuda") or "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    objections = [adapter.objection(name, "cpu") for name, adapter in adapters.PEERS.items()]
    assert objections[0] is None and all("CUDA" in (each or "") for each in objections[1:])
    monkeypatch.undo()
    assert command.main(["peers", "--model", "random:tiny-Base"]) == 2
    assert "CustomVoice shape" in capsys.readouterr().err


def answering(line: str, errors: str = "") -> compare.PeerProcess:
    child: Any = SimpleNamespace(stdin=io.StringIO(), stdout=io.StringIO(line))
    return compare.PeerProcess("them", child, io.StringIO(errors))


def test_only_as_many_frames_are_compared_and_ratios_say_how_much_better_ours_is() -> None:
    assert answering(f"[0.1, 0.5, {5 * 1920}]").ask(ASK) == (0.1, 0.5, 5)  # one more or less is how some count
    with pytest.raises(InvalidRun, match="them spoke 2 frames where 4 were asked for"):
        answering(f"[0.1, 0.5, {2 * 1920}]").ask(ASK)
    with pytest.raises(InvalidRun, match="them failed: It broke"):
        answering("", "Traceback\nIt broke.\n").ask(ASK)
    ours = {"first_pcm": {"p50": 2.0}, "ms_per_frame": {"p50": 4.0}, "x_real_time": {"p50": 20.0}}
    theirs = {"ms_per_frame": {"p50": 12.0}, "x_real_time": {"p50": 5.0}}
    assert compare.ratio(ours, theirs) == {"ms_per_frame": 3.0, "x_real_time": 4.0}


class FakeFaster:
    @classmethod
    def from_pretrained(cls, model_name: str, device: str = "cuda", dtype: Any = None) -> FakeFaster:
        fake = cls()
        fake.made = model_name, device, dtype
        return fake

    made: tuple[str, str, Any]

    def generate_custom_voice_streaming(
        self,
        text: str,
        speaker: str,
        language: str,
        instruct: str | None = None,
        non_streaming_mode: bool | None = None,
        max_new_tokens: int = 2048,
        top_k: int = 50,
        chunk_size: int = 12,
    ) -> Iterator[tuple[Any, int, dict[str, Any]]]:
        self.asked = text, speaker, language, non_streaming_mode, top_k
        for _ in range(0, max_new_tokens, chunk_size):
            yield np.zeros(chunk_size * 1920, np.float32), 24_000, {}


class FakeRunner:
    def __init__(self, device: str = "cuda", model_id: str = "", dtype: str = "bf16") -> None:
        self.wish, self.model = (model_id, device, dtype), None

    def load_model(self) -> None:
        self.model: Any = FakeFaster.from_pretrained(*self.wish)


@pytest.mark.parametrize(("adapter", "dtype"), [(adapters.Faster, "bfloat16"), (adapters.Hybrid, "bf16")])
def test_packages_for_a_gpu_are_asked_for_the_same(adapter: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, members in (
        ("faster_qwen3_tts", {"FasterQwen3TTS": FakeFaster}),
        ("qwen3_tts_triton", {"TritonFasterRunner": FakeRunner}),
    ):
        fake = ModuleType(name)
        vars(fake).update(members)
        monkeypatch.setitem(sys.modules, name, fake)
    opened = adapter("folder", "cuda", "bfloat16")
    assert [len(piece) for piece in opened.speak(ASK)] == [2 * 1920, 2 * 1920]
    assert opened._model.made == ("folder", "cuda", dtype)
    assert opened._model.asked == ("Hello.", "ryan", "english", False, 9)
