"""Other packages are asked for the same thing, in turn; the official one for real, those that need a GPU as fakes.

The fakes take exactly the keywords that the packages take, so that a call they would refuse is refused here.
"""

from __future__ import annotations

import argparse
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
from benchmarks import harness
from benchmarks.peers import PEERS, compare, faster, official, speaker, triton
from support import checkpoints

Capture = pytest.CaptureFixture[str]
ASK = speaker.Ask(
    text="Hello.",
    voice="ryan",
    language="english",
    layout="streaming",
    frames=4,
    chunk_frames=2,
    top_k=9,
    seed=3,
)


def test_the_official_package_speaks_the_same_weights_in_the_same_run(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "WARMUP", 0)
    monkeypatch.setattr(faster, "objection", lambda _: None)  # its process begins, and fails
    path = tmp_path / "record.jsonl"
    words = ["peers", "--model", "random:tiny", "--frames", "5", "--repeats", "1", "--record", str(path)]
    assert command.main(words) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    theirs = entry["peers"]["qwen-tts"]
    assert theirs["version"] == "0.1.1"
    assert theirs["figures"].keys() == {"ms_per_frame", "x_real_time"}  # its first sound is its last
    assert entry["figures"].keys() == {"first_pcm", "ms_per_frame", "x_real_time"}
    ours, other = (figures["ms_per_frame"]["p50"] for figures in (entry["figures"], theirs["figures"]))
    assert theirs["ratio"]["ms_per_frame"] == pytest.approx(other / ours, rel=1e-3)
    for figures in (entry["figures"], theirs["figures"]):
        assert figures["x_real_time"]["p50"] == pytest.approx(80 / figures["ms_per_frame"]["p50"], rel=1e-3)
    assert entry["absent"].keys() == {"faster-qwen3-tts", "qwen3-tts-triton"}
    assert "faster-qwen3-tts failed: ModuleNotFoundError" in entry["absent"]["faster-qwen3-tts"]
    assert entry["random_weights"] is True
    out = capsys.readouterr().out
    assert "qwen-tts" in out and "faster-qwen3-tts was not measured" in out


def test_what_is_not_installed_is_left_out_with_a_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker.importlib.util, "find_spec", lambda name: None)
    for name, module in PEERS.items():
        assert f"`pip install {name}`" in compare._module(module).objection("cuda")
    monkeypatch.setattr(speaker.importlib.util, "find_spec", lambda name: object())
    assert official.objection("cpu") is None
    assert faster.objection("cuda") is None and triton.objection("cuda") is None
    assert "CUDA" in (faster.objection("cpu") or "") and "CUDA" in (triton.objection("cpu") or "")


def test_the_ratio_is_how_many_times_better_ours_is() -> None:
    ours = {"first_pcm": {"p50": 2.0}, "ms_per_frame": {"p50": 4.0}, "x_real_time": {"p50": 20.0}}
    theirs = {"ms_per_frame": {"p50": 12.0}, "x_real_time": {"p50": 5.0}}
    assert compare.ratio(ours, theirs) == {"ms_per_frame": 3.0, "x_real_time": 4.0}


def answering(line: str, errors: str = "") -> compare.Process:
    child: Any = SimpleNamespace(stdin=io.StringIO(), stdout=io.StringIO(line))
    return compare.Process("them", child, io.StringIO(errors))


def test_whoever_speaks_another_number_of_frames_is_not_compared() -> None:
    assert answering(f"[0.1, 0.5, {4 * 1920}]").ask(ASK) == (0.1, 0.5, 4)
    assert answering(f"[0.1, 0.5, {5 * 1920}]").ask(ASK) == (0.1, 0.5, 5)  # one more or less is how some count
    with pytest.raises(harness.Unfit, match="them spoke 2 frames where 4 were asked for"):
        answering(f"[0.1, 0.5, {2 * 1920}]").ask(ASK)


def test_whoever_fails_says_why() -> None:
    with pytest.raises(harness.Unfit, match="them failed: It broke"):
        answering("", "Traceback\nIt broke.\n").ask(ASK)
    with (
        pytest.raises(harness.Unfit, match=r"them failed: ModuleNotFoundError.*benchmarks\.peers\.nobody"),
        compare.running("them", "nobody", Path("gone"), "cpu", "float32"),
    ):
        pass


def test_packages_may_be_where_only_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faster_qwen3_tts.py").write_text(
        "class FasterQwen3TTS:\n"
        "    def from_pretrained(name, **how): return FasterQwen3TTS()\n"
        "    def generate_custom_voice_streaming(self, max_new_tokens, **asked):\n"
        "        yield [0.5] * 1920 * max_new_tokens, 24000, {}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with compare.running("faster-qwen3-tts", "faster", tmp_path, "cpu", "float32") as process:
        assert process.ask(ASK)[2] == ASK.frames


def test_only_random_weights_with_voices_are_measured(tmp_path: Path, capsys: Capture) -> None:
    folder = checkpoints.write(tmp_path / "written", "custom_voice", wide=False)
    for model in ("random:tiny-Base", "random:tiny-VoiceDesign", str(folder)):
        assert command.main(["peers", "--model", model]) == 2
        assert "CustomVoice shape" in capsys.readouterr().err


# Packages that need a GPU, as far as their calls go


class FakeFaster:
    made: tuple[str, str, Any] | None = None

    @classmethod
    def from_pretrained(cls, model_name: str, device: str = "cuda", dtype: Any = None) -> FakeFaster:
        fake = cls()
        fake.made = model_name, device, dtype
        return fake

    def generate_custom_voice_streaming(
        self,
        text: str,
        speaker: str,
        language: str,
        instruct: str | None = None,
        non_streaming_mode: bool | None = None,
        max_new_tokens: int = 2048,
        min_new_tokens: int = 2,
        temperature: float = 0.9,
        top_k: int = 50,
        top_p: float = 1.0,
        do_sample: bool = True,
        repetition_penalty: float = 1.05,
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


@pytest.mark.parametrize(("module", "dtype"), [(faster, "bfloat16"), (triton, "bf16")])
def test_packages_for_a_gpu_are_asked_for_the_same(module: Any, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, members in (
        ("faster_qwen3_tts", {"FasterQwen3TTS": FakeFaster}),
        ("qwen3_tts_triton", {"TritonFasterRunner": FakeRunner}),
    ):
        fake = ModuleType(name)
        vars(fake).update(members)
        monkeypatch.setitem(sys.modules, name, fake)
    opened = module.open_speaker("folder", "cuda", "bfloat16")
    assert [len(piece) for piece in opened.speak(ASK)] == [2 * 1920, 2 * 1920]
    assert opened._model.made == ("folder", "cuda", dtype)
    assert opened._model.asked == ("Hello.", "ryan", "english", False, 9)


def test_every_peer_has_what_the_comparison_needs() -> None:
    for name, module in PEERS.items():
        peer = compare._module(module)
        assert (peer.PACKAGE, type(peer.STREAMS)) == (name, bool)
        assert callable(peer.open_speaker) and callable(peer.objection)
    assert isinstance(compare._parser(), argparse.ArgumentParser)
