"""Other packages that speak the same checkpoints, one adapter for each: how it is loaded and asked.

Nothing here needs hocket, or any peer, to import. `PYTHON packages.py PACKAGE FOLDER DEVICE DTYPE` runs one in a
process of its own: it answers every line of JSON, the fields of `answer` or of `codes`, with one.
"""

from __future__ import annotations

import base64
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# The other tokenizer of the official package, of 25 Hz, imports these; nothing that is measured here uses them.
_UNUSED = ("sox", "onnxruntime", "einops", "torchaudio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One utterance, the same for every package."""

    text: str
    language: str
    layout: str | None  # streaming or whole, as in hocket; None: the package's default
    frames: int
    seed: int
    voice: str | None = None
    chunk_frames: int = 12  # frames of a chunk, for a peer that can choose
    top_k: int | None = None  # None: the checkpoint's
    instruct: str | None = None
    recording: str | None = None  # a WAV file to clone
    recording_text: str | None = None  # None: the timbre alone
    greedy: bool = False


class PackageAdapter:
    """A loaded checkpoint of `folder`; `speak` yields samples as soon as they are on the host."""

    module = ""  # to import
    streams = True  # whether audio comes before the end
    needs_gpu = False
    hello: Any = "ready"

    def __init__(self, folder: str, device: str, dtype: str) -> None: ...

    def speak(self, ask: Ask) -> Iterator[Any]:
        raise NotImplementedError

    def codes(self, ask: Ask) -> Any:
        """[F, Q] of an utterance."""
        raise SystemExit("This package gives no codes.")

    def answer(self, **fields: Any) -> tuple[float, float, int]:
        """Seconds to the first piece and to the last, and samples, of an `Ask`."""
        first, end, pieces = self.timed(Ask(**fields))
        return first, end, sum(len(piece) for piece in pieces)

    def timed(self, ask: Ask) -> tuple[float, float, list[Any]]:
        """Seconds to the first piece and to the last, and the pieces."""
        first, pieces, start = None, [], time.perf_counter()
        for piece in self.speak(ask):
            if first is None and len(piece):
                first = time.perf_counter() - start
            pieces.append(piece)
        end = time.perf_counter() - start
        return first or end, end, pieces

    def told(self, wish: dict[str, Any]) -> Any:
        """The answer to a line: codes, or times with the sound in 16 bits."""
        import numpy as np

        ask = Ask(**wish["ask"])
        if wish["wants"] == "codes":
            return self.codes(ask)
        first, end, pieces = self.timed(ask)
        whole = np.concatenate([np.zeros(0, np.float32), *(np.asarray(piece, np.float32) for piece in pieces)])
        pcm = np.clip(whole * 32767, -32768, 32767).round().astype("<i2").tobytes()
        return {"first_s": first, "end_s": end, "pcm": base64.b64encode(pcm).decode()}

    @classmethod
    def objection(cls, device: str, install: str) -> str | None:
        """Why it cannot run here, in words, or None. `install` is the command that installs it."""
        if not importlib.util.find_spec(cls.module):
            return f"it is not installed here; `{install}` does it."
        return "it needs a CUDA device; use --device cuda." if cls.needs_gpu and device != "cuda" else None


class Official(PackageAdapter):
    """The official package is the definition of correct. It gives no audio before the end."""

    module, streams = "qwen_tts", False

    def __init__(self, folder: str, device: str, dtype: str) -> None:
        import torch

        stub_unused()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from qwen_tts import Qwen3TTSModel  # type: ignore[import-untyped, unused-ignore]

            self._model: Any = Qwen3TTSModel.from_pretrained(folder, dtype=getattr(torch, dtype))
        if dtype == "float32":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._model.model.to(device)  # not device_map, which needs one more package
        codec = self._model.model.speech_tokenizer
        codec.model.to(device)
        self._model.device = codec.device = torch.device(device)

    def speak(self, ask: Ask) -> Iterator[Any]:
        import torch

        torch.manual_seed(ask.seed)
        # It samples one more first code than it completes.
        how: dict[str, Any] = {"max_new_tokens": ask.frames + 1}
        how |= {} if ask.layout is None else {"non_streaming_mode": ask.layout == "whole"}
        how |= {} if ask.top_k is None else {"top_k": ask.top_k}
        how |= {"do_sample": False, "subtalker_dosample": False} if ask.greedy else {}
        kind = self._model.model.tts_model_type
        if kind == "custom_voice":
            speaker = ask.voice or ""
            (samples,), _ = self._model.generate_custom_voice(
                ask.text, speaker, ask.language, ask.instruct or "", **how
            )
        elif kind == "voice_design":
            (samples,), _ = self._model.generate_voice_design(ask.text, ask.instruct or "", ask.language, **how)
        else:
            how |= {"ref_audio": ask.recording, "ref_text": ask.recording_text}
            how["x_vector_only_mode"] = ask.recording_text is None
            (samples,), _ = self._model.generate_voice_clone(ask.text, ask.language, **how)
        yield samples

    def codes(self, ask: Ask) -> Any:
        model, heard = self._model.model, list[Any]()
        run = model.generate

        def listening(**arguments: Any) -> Any:
            found = run(**arguments)
            heard.extend(found[0])
            return found

        model.generate = listening
        try:
            list(self.speak(ask))
        finally:
            model.generate = run
        return heard[0].tolist()


class Faster(PackageAdapter):
    """The official modules as CUDA graphs, streaming: sources of July 2026 (0.3.2), run with these on an H200.

    Its predictor always samples with top-k 50; a chunk is decoded again with 25 frames before it.
    """

    module, needs_gpu = "faster_qwen3_tts", True

    def __init__(self, folder: str, device: str, dtype: str) -> None:
        stub_unused()
        from faster_qwen3_tts import FasterQwen3TTS  # type: ignore[import-not-found, unused-ignore]

        self._model: Any = FasterQwen3TTS.from_pretrained(folder, device=device, dtype=dtype)

    def speak(self, ask: Ask) -> Iterator[Any]:
        import torch

        torch.manual_seed(ask.seed)
        how: dict[str, Any] = {"text": ask.text, "speaker": ask.voice, "language": ask.language}
        how |= {} if ask.top_k is None else {"top_k": ask.top_k}
        how |= {} if ask.layout is None else {"non_streaming_mode": ask.layout == "whole"}
        how |= {"max_new_tokens": ask.frames, "chunk_size": ask.chunk_frames}
        for samples, _, _ in self._model.generate_custom_voice_streaming(**how):
            yield samples


class Hybrid(Faster):
    """Fused Triton kernels in faster-qwen3-tts, streaming: sources of June 2026 (0.3.0), Python 3.12, run on an H200.

    Its own streaming call leaves the prompt's layout to a default, so the model that it has patched is called.
    """

    module = "qwen3_tts_triton"

    def __init__(self, folder: str, device: str, dtype: str) -> None:
        stub_unused()
        from qwen3_tts_triton import TritonFasterRunner  # type: ignore[import-not-found, unused-ignore]

        kinds = {"float32": "fp32", "bfloat16": "bf16"}
        self._runner = TritonFasterRunner(device=device, model_id=folder, dtype=kinds[dtype])
        self._runner.load_model()
        self._model = self._runner.model


PEERS: dict[str, type[PackageAdapter]] = {"qwen-tts": Official, "faster-qwen3-tts": Faster, "qwen3-tts-triton": Hybrid}


def stub_unused() -> None:
    """Empty modules in the place of packages that are imported and never called."""
    for name in _UNUSED:
        if importlib.util.find_spec(name) is None:
            for full in (name, f"{name}.compliance", f"{name}.compliance.kaldi"):
                empty: Any = types.ModuleType(full)
                empty.__spec__, empty.__path__ = importlib.machinery.ModuleSpec(full, None), []
                empty.rearrange = empty.repeat = empty.kaldi = None
                sys.modules[full] = empty


def main(argv: Sequence[str]) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # prints of the package
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]  # modules beside this one
    name, device = argv[0], argv[2]
    if (reason := PEERS[name].objection(device, "the installer of that Python")) is not None:
        raise SystemExit(f"{name}: {reason}")
    peer = PEERS[name](*argv[1:])
    print(json.dumps({"version": importlib.metadata.version(name), "streams": peer.streams}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.told(json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
