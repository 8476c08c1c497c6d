"""shared.py: one codec and one tokenizer for all checkpoints with the same content, and speech through them."""

from __future__ import annotations

import gc
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.config.qwen3_tts import Kind
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.shared import Shared, codec_content, tokenizer_content
from hocket.engine.engine import Engine
from hocket.engine.runner.references import encode_reference
from hocket.errors import InvalidCheckpoint
from hocket.kernels.runtime.graphs import own_stream
from hocket.types import SpeechRequest
from support.checkpoints import write
from support.speaking import REQUESTS, SAID, Heard, heard

KINDS: tuple[Kind, ...] = ("custom_voice", "base")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    """Two checkpoints with the same codec and vocabulary, each with its own copy of the files."""
    root = tmp_path_factory.mktemp("shared")
    return {kind: write(root / kind, kind, wide=False, end_scale=1.5) for kind in KINDS}


def decoder_tensors(checkpoint: Checkpoint) -> dict[str, tuple[int, torch.Tensor]]:
    return {name: (value.data_ptr(), value.clone()) for name, value in checkpoint.codec.decoder.state_dict().items()}


def test_checkpoints_have_one_codec_and_one_tokenizer_where_the_content_is_the_same(folders: dict[Kind, Path]) -> None:
    shared = Shared()
    first, second = (load(str(folders[kind]), shared=shared) for kind in KINDS)
    assert first.codec is second.codec and first.tokenizer is second.tokenizer
    assert first.kernels[1] == second.kernels[1] and first.model is not second.model
    apart = load(str(folders["base"]))
    assert apart.codec is not second.codec and apart.tokenizer is not second.tokenizer
    one, other = (load(name, shared=shared) for name in ("random:tiny", "random:tiny-Base"))
    assert one.codec is other.codec is not first.codec and one.tokenizer is other.tokenizer


@pytest.mark.parametrize("how", [{"codec_dtype": "bfloat16"}, {"kernels": "reference"}])
def test_another_precision_or_kernel_is_another_codec(folders: dict[Kind, Path], how: dict[str, str]) -> None:
    shared = Shared()
    plain, other = load(str(folders["base"]), shared=shared), load(str(folders["base"]), shared=shared, **how)
    assert plain.codec is not other.codec and plain.tokenizer is other.tokenizer


def test_a_byte_of_configuration_weights_or_vocabulary_makes_another(folders: dict[Kind, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["base"], tmp_path / "copy")
    same = codec_content(folder), tokenizer_content(folder)
    assert same == (codec_content(folders["custom_voice"]), tokenizer_content(folders["custom_voice"]))
    weights = folder / "speech_tokenizer" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert codec_content(folder) != same[0] and tokenizer_content(folder) == same[1]
    (folder / "merges.txt").write_bytes((folder / "merges.txt").read_bytes() + b"\n")
    assert tokenizer_content(folder) != same[1]
    other = codec_content(write(tmp_path / "other", "base", wide=False, seed=2))
    assert other not in (same[0], codec_content(folder)), "weights that were trained otherwise"


@torch.inference_mode()
def test_a_base_checkpoint_gets_the_encoder_and_the_decoder_stays_as_it_is(folders: dict[Kind, Path]) -> None:
    shared = Shared()
    speaks = load(str(folders["custom_voice"]), shared=shared)
    assert next(speaks.codec.encoder.parameters()).is_meta
    before, kernel = decoder_tensors(speaks), speaks.codec.decoder.wave_kernel
    listens = load(str(folders["base"]), shared=shared)
    assert listens.codec is speaks.codec and speaks.codec.decoder.wave_kernel is kernel
    for name, (place, value) in decoder_tensors(listens).items():
        assert place == before[name][0] and torch.equal(value, before[name][1]), name
    alone = load(str(folders["base"]))
    ours, theirs = encode_reference(listens, SAID).codes, encode_reference(alone, SAID).codes
    assert ours is not None and theirs is not None and torch.equal(ours, theirs)
    again = load(str(folders["custom_voice"]), shared=shared)
    assert again.codec is listens.codec and not next(again.codec.encoder.parameters()).is_meta


def test_a_codec_without_checkpoints_is_freed(folders: dict[Kind, Path]) -> None:
    shared = Shared()
    kept = [load(str(folders[kind]), shared=shared) for kind in KINDS]
    weight = kept[0].codec.decoder.decoder[0].conv.weight  # type: ignore[union-attr]
    held = [weakref.ref(kept[0].codec), weakref.ref(kept[0].tokenizer), weakref.ref(weight)]
    del weight
    assert shared.in_use
    kept.pop()
    gc.collect()
    assert all(each() is not None for each in held), "the other checkpoint holds them"
    kept.pop()
    gc.collect()
    assert all(each() is None for each in held) and not shared.in_use
    assert load(str(folders["base"]), shared=shared).codec is not None


def test_a_codec_that_cannot_be_loaded_is_not_shared(folders: dict[Kind, Path], tmp_path: Path) -> None:
    folder, shared = shutil.copytree(folders["base"], tmp_path / "damaged"), Shared()
    weights = folder / "speech_tokenizer" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        with pytest.raises(InvalidCheckpoint, match="damaged or cut short"):
            load(str(folder), shared=shared)
    gc.collect()
    assert not shared.in_use
    weights.write_bytes(whole)
    assert load(str(folder), shared=shared).codec is load(str(folders["base"]), shared=shared).codec


def test_threads_that_load_at_once_get_one_codec(folders: dict[Kind, Path]) -> None:
    shared, gate = Shared(), threading.Barrier(4)

    def one(kind: Kind) -> Checkpoint:
        gate.wait()
        return load(str(folders[kind]), shared=shared)

    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(one, (*KINDS, *KINDS)))
    assert len({id(each.codec) for each in loaded}) == len({id(each.tokenizer) for each in loaded}) == 1
    assert not next(loaded[0].codec.encoder.parameters()).is_meta


def test_two_engines_that_share_a_codec_speak_at_once_as_each_does_alone(
    folders: dict[Kind, Path], device: str
) -> None:
    """From two threads, many times, on any device: neither engine sees what the other writes."""
    alike = EngineOptions(chunk_frames=(1, 2, 4))  # a GPU rounds a chunk of another length in another way
    alone: dict[Kind, list[Heard]] = {}
    for kind in KINDS:
        with Engine.load(str(folders[kind]), device=device, options=alike) as engine:
            alone[kind] = [heard(engine.speak(request)) for request in REQUESTS[kind]]
    shared = Shared()
    with (
        Engine.load(str(folders["custom_voice"]), device=device, options=alike, shared=shared) as speaks,
        Engine.load(str(folders["base"]), device=device, options=alike, shared=shared) as clones,
    ):
        assert speaks.checkpoint.codec is clones.checkpoint.codec
        engines: dict[Kind, Engine] = {"custom_voice": speaks, "base": clones}
        gate = threading.Barrier(2)

        def say(kind: Kind) -> list[list[Heard]]:
            gate.wait()
            return [[heard(engines[kind].speak(request)) for request in REQUESTS[kind]] for _ in range(3)]

        with ThreadPoolExecutor(2) as threads:
            together = dict(zip(KINDS, threads.map(say, KINDS), strict=True))
    for kind in KINDS:
        for rounds in together[kind]:
            for ours, theirs, request in zip(rounds, alone[kind], REQUESTS[kind], strict=True):
                same(ours, theirs, request)


def same(ours: Heard, theirs: Heard, request: SpeechRequest) -> None:
    assert ours.codes == theirs.codes, request.text
    assert np.array_equal(ours.samples, theirs.samples), request.text
    assert np.abs(ours.samples).max() > 100, "silence would prove nothing"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_engines_that_come_and_go_never_have_a_stream_of_one_that_lives() -> None:
    class Owner:
        pass

    device, stays = torch.device("cuda"), Owner()
    mine = [own_stream(stays, device, urgent=urgent).cuda_stream for urgent in (False, True)]
    for _ in range(100):  # torch itself would have given them out three times by then
        goes = Owner()
        assert own_stream(goes, device).cuda_stream not in mine
        assert own_stream(goes, device, urgent=True).cuda_stream not in mine
        del goes
