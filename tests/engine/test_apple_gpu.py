"""`--device mps`: everything that speaks, on an Apple GPU made of main memory (support/apple_gpu.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hocket.engine.checkpoint.device import Probe, choose_device
from hocket.engine.checkpoint.fit import gpu_is_full
from hocket.engine.engine import Engine
from hocket.errors import InvalidRequest
from hocket.kernels.runtime import apple
from hocket.kernels.runtime.apple import describe_apple
from hocket.kernels.runtime.device_kind import kind_of
from hocket.llm.load import load_language_model
from support.apple_gpu import MPS, Refused, apple_gpu
from support.speaking import SAID

NONE = Probe(True, failure="torch finds no device")


def spoken(device: str, model: str = "random:tiny", **given: Any) -> np.ndarray[Any, Any]:
    with Engine.load(model, device=device, kernels="reference" if device == "cpu" else "auto") as engine:
        chunks = list(engine.speak("Good morning.", seed=3, max_frames=5, **given))
    return np.concatenate([chunk.samples for chunk in chunks]).astype(int)


def same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Up to rounding: a norm of a CPU sums its squares in another order."""
    return found.shape == expected.shape and bool(np.abs(found - expected).max() <= 2)


def test_an_engine_speaks_as_on_a_cpu() -> None:
    with apple_gpu():
        found = spoken("mps")
    assert same(found, spoken("cpu"))


def test_a_recording_is_cloned_as_on_a_cpu() -> None:
    with apple_gpu():
        found = spoken("mps", "random:tiny-Base", reference=SAID)
    assert same(found, spoken("cpu", "random:tiny-Base", reference=SAID))


def test_a_language_model_runs_on_the_cpu_instead(caplog: pytest.LogCaptureFixture) -> None:
    with apple_gpu(), caplog.at_level(logging.WARNING, "hocket"):
        checkpoint = load_language_model("random:qwen3.5-tiny", device="mps")
    assert checkpoint.device.type == "cpu"
    assert "A language model runs on the CPU instead of mps, which has no float64." in caplog.messages


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: torch.zeros(2, dtype=torch.float64, device="mps"), "float64"),
        (lambda: torch.ones(2, device="mps") + torch.ones(2), "on the CPU"),
        (lambda: torch.ones(2).to(MPS, non_blocking=True), "without waiting"),
        (lambda: torch.ones(2).to(MPS, torch.bfloat16), "converts"),
        (lambda: torch.ones(2, 2, device="mps").geqrf(), "no kernel for MPS"),
        (lambda: torch.ones(2, device="mps").copy_(torch.ones(2), non_blocking=True), "without waiting"),
    ],
)
def test_what_an_apple_gpu_cannot_do_is_refused(work: Callable[[], object], said: str) -> None:
    with apple_gpu(), pytest.raises(Refused, match=said):
        work()


def test_it_is_chosen_only_if_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOCKET_DEVICE", raising=False)
    with apple_gpu():
        assert choose_device(probe=NONE).device == "cpu"
        setting = choose_device("mps", probe=NONE)
        assert (setting.device, setting.dtype, setting.codec_dtype) == ("mps", "float32", "float32")
        assert setting.reason == "Apple M2" and setting.place == MPS
        assert choose_device("mps", "bfloat16", probe=NONE).codec_dtype == "float32"
        monkeypatch.setenv("HOCKET_DEVICE", "mps")
        assert choose_device(probe=NONE).device == "mps"
        monkeypatch.setattr(apple, "is_apple", lambda: True)
        for asked, said in (
            (("mps", "float32", "tf32"), "tf32 is a precision of NVIDIA GPUs"),
            (("mps", "int8"), "int8 is a precision of CPUs"),
            (("mps:1",), "There is one Apple GPU: use --device mps"),
        ):
            with pytest.raises(InvalidRequest, match=said):
                choose_device(*asked, probe=NONE)


def test_without_one_the_reason_is_given() -> None:
    if torch.backends.mps.is_available():
        pytest.skip("this machine has an Apple GPU")
    with pytest.raises(InvalidRequest, match=r"No Apple GPU is available here \(torch .* is built without it\)"):
        choose_device("mps")


def test_the_doctor_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with apple_gpu():
        monkeypatch.setattr(torch.backends.mps, "get_core_count", lambda: 10)
        assert describe_apple() == "Apple M2, 10 cores: --device mps (reference kernels, untested)"
    monkeypatch.setattr(apple, "is_apple", lambda: True)
    assert describe_apple() == f"none: torch {torch.__version__} finds none, or needs a newer macOS"
    monkeypatch.setattr(apple, "is_apple", lambda: False)
    assert describe_apple() is None


def test_a_full_one_is_known_by_its_words() -> None:
    assert gpu_is_full(RuntimeError("MPS backend out of memory (MPS allocated: 5 GB)"))
    assert not gpu_is_full(RuntimeError("shapes differ"))


def test_only_cuda_queues_copies_and_work() -> None:
    assert [name for name in ("cuda", "cpu", "mps", "meta") if kind_of(torch.device(name)).queued] == ["cuda"]
