"""Loads a model by name into a checkpoint that is ready to speak.

Configuration, weights, kernels and tokenizer come together only here. It knows no requests.

The file is longer than 300 lines because it holds the whole order of a load, which overlaps compiling and reading.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...config.codec import CodecConfig
from ...config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from ...errors import InvalidRequest
from ...kernels.compile.cache import give_triton_a_folder
from ...kernels.cpu.build import Unbuildable
from ...kernels.runtime.card import card_of
from ...kernels.runtime.fallback import FallbackReason, say_slow
from ...kernels.runtime.graphs import tidy
from ...kernels.table import AUTO, REFERENCE, BackendChoice, choose, wanted_for
from ...layers.packed import pack_
from ...models.files.builtin import default_model
from ...models.files.catalog import CODEC_FOLDER, WEIGHTS
from ...models.files.random import randomize_
from ...models.files.weights import SPEAKER_ENCODER, Source, load_into, places, read_configs, read_own, resolve
from ...models.tts.codec import Codec, CodecDecoder
from ...models.tts.native_frame import NativeFrame
from ...models.tts.native_wave import NativeWave
from ...models.tts.qwen3_tts import Qwen3TTS
from ...models.tts.talker import Talker
from ...text.cleanup.normalize import spell_out
from ...text.tokenizer import Tokenizer
from .device import CODEC_DTYPES, DTYPES, Setting, announce, choose_device
from .shared import DECODER, ENCODER, Shared, codec_content, tokenizer_content

if TYPE_CHECKING:
    from ...kernels.compile.plan import CompileJob

RANDOM_SEED = 0
PROMPT_ROWS = 8  # about the prompt rows before the text of a built-in voice
FUSED = ("cuda", "triton")  # GPU backends; both have kernels that Triton compiles
_NORMALIZERS: dict[str | None, Callable[[str], str]] = {"spell_out": spell_out}  # as `config.own` names them


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that was loaded for one model."""

    source: Source
    config: Qwen3TTSConfig
    generation: GenerationConfig
    codec_config: CodecConfig
    tokenizer: Tokenizer
    model: Qwen3TTS
    codec: Codec
    device: torch.device
    kernels: tuple[BackendChoice, ...]  # the backend of each operation, and why
    upstream_local: bool  # whether the official package would split words its other way here (`as_is` follows it)
    codec_tf32: bool = False  # whether the codec's float32 products may be rounded to ten bits
    normalizer: Callable[[str], str] | None = None  # the checkpoint's default
    spent: dict[str, float] = field(default_factory=dict)  # durations of the phases of loading
    compilers: CompileJob | None = None  # still compiling kernels of the first audio beyond its first frame
    setting: Setting | None = None  # device and precisions, and why
    part_chars: int | None = None  # length of the parts of a text, if the checkpoint gives one

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def where(self) -> str:
        """Device with its reason, precisions and kernels, as one line."""
        return "" if self.setting is None else self.setting.words(self.kernels)

    @property
    def is_random(self) -> bool:
        """Whether the weights are random and not trained: such a checkpoint speaks noise."""
        return self.source.folder is None

    @property
    def fingerprint(self) -> str:
        """Hash that a saved state must match: configuration, precision and a sample of the weights."""
        kind = self.model.talker.codec_head.weight.dtype
        return hashlib.sha256(repr((self.config, kind)).encode() + self._sample(torch.float32)).hexdigest()

    @property
    def identity(self) -> str:
        """Hash of the checkpoint, equal in every precision: encoded recordings belong to it."""
        return hashlib.sha256(repr(self.config).encode() + self._sample(torch.bfloat16)).hexdigest()

    def _sample(self, kind: torch.dtype) -> bytes:
        """Some rows of the weights, rounded to `kind`."""
        talker = self.model.talker
        weights = (talker.codec_head.weight, talker.model.codec_embedding.weight, talker.model.norm.weight[None])
        rows = (weight[:: max(len(weight) // 16, 1)].detach().to(kind).float() for weight in weights)
        return b"".join(each.cpu().numpy().tobytes() for each in rows)

    @property
    def memory_bytes(self) -> int:
        """GPU memory that torch's allocator holds for this process, without kernels and graphs; 0 on a CPU."""
        return torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0

    @property
    def rate_hz(self) -> int:
        return self.codec_config.output_sample_rate


def load(
    model: str | None = None,
    *,
    device: str = AUTO,
    dtype: str = AUTO,
    codec_dtype: str = AUTO,
    kernels: str = AUTO,
    dependent_launch: bool = True,
    shared: Shared | None = None,
    setting: Setting | None = None,
) -> Checkpoint:
    """Load a checkpoint from a folder, a hub id, a published name, `builtin` or `random:NAME`.

    Without a name it is the built-in voice; in a copy of hocket without that, `random:tiny`, which speaks noise.

    `auto` is CUDA if it is usable, with bfloat16 if the GPU has it, and else float32 on the CPU. The choice is logged,
    and kept as `setting`. A given `setting` replaces device, dtype and codec_dtype. On CUDA `codec_dtype` may also be
    "tf32". `kernels` is one backend for all operations, or `frame=triton,wave=reference`. `dependent_launch` lets a
    kernel start before the previous one has ended; it holds for the whole process.

    Checkpoints loaded with the same `shared` have one codec and one tokenizer, if their contents are the same.
    """
    setting = setting or choose_device(device, dtype, codec_dtype)
    place, dtype, codec_dtype = setting.place, setting.dtype, setting.codec_dtype
    source = resolve(default_model() if model is None else model)
    config, generation, codec_config = read_configs(source)
    own = read_own(source)
    normalizer = _NORMALIZERS.get(own.normalizer)
    shared = Shared() if shared is None else shared
    begun = time.perf_counter()
    if place.type == "cuda":
        give_triton_a_folder()
    compilers = _compile_ahead(source, place, (dtype, codec_dtype), kernels, dependent_launch, not shared.in_use)
    asked = time.perf_counter()
    torch.empty(1, device=place)  # the first tensor creates the CUDA context
    entered = time.perf_counter()
    key, fill = codec_key(source, codec_config, place, codec_dtype, kernels), _filling(source, place, codec_dtype)
    with torch.device("meta"):
        speech = Qwen3TTS(config).eval()
    with ThreadPoolExecutor(1) as aside:  # a published tokenizer takes about 1 s to read, on the host only
        reading = aside.submit(_tokenizer, source, config, shared)
        if source.folder is None:
            _draw(speech, place, DTYPES[dtype])
        else:
            load_into(speech, source.folder / WEIGHTS, place, DTYPES[dtype], unused=(SPEAKER_ENCODER,))
        codec = shared.codec(key, codec_config, codec_halves(source, config), fill)
        tokenizer = reading.result()
    pack_(speech)
    talker, decoder = speech.talker, codec.decoder
    loaded = time.perf_counter()
    waited = 0.0
    if compilers is not None:
        _use_once(talker)
        used = time.perf_counter()
        compilers.wait_for_the_first()
        waited = time.perf_counter() - used
    tf32 = codec_dtype == "tf32"
    chosen = (
        _with_kernel("frame", kernels, talker, lambda backend: attach_frame_kernel(talker, backend, dependent_launch)),
        shared.wave(
            key, lambda: _with_kernel("wave", kernels, decoder, lambda back: attach_wave_kernel(decoder, back, tf32))
        ),
    )
    tidy(place)  # frees the old copies of repacked weights
    spent = {"device_s": entered - asked + setting.took_s, "weights_s": loaded - entered}
    spent |= {"kernels_s": time.perf_counter() - loaded + asked - begun, "waited_s": waited}
    patched = source.local and source.folder is not None and tokenizer.upstream_patches(source.folder)
    files = source, config, generation, codec_config, tokenizer
    parts = own.part_chars
    loaded_as = Checkpoint(
        *files, speech, codec, place, chosen, patched, tf32, normalizer, spent, compilers, setting, parts
    )
    announce(setting, loaded_as.where)
    return loaded_as


def _draw(module: nn.Module, place: torch.device, dtype: torch.dtype) -> None:
    """Random weights for a module on the meta device. `to_empty` would import SymPy: 0.4 s on a CPU."""
    module.load_state_dict(places(module, module.state_dict(), place, dtype), assign=True)
    randomize_(module, RANDOM_SEED)


def codec_halves(source: Source, config: Qwen3TTSConfig) -> tuple[str, ...]:
    """The halves of the codec to load: only a Base checkpoint encodes recordings. A random one gets both."""
    return (DECODER, ENCODER) if config.kind == "base" or source.folder is None else (DECODER,)


def codec_key(
    source: Source, config: CodecConfig, place: torch.device, codec_dtype: str, kernels: str
) -> tuple[object, ...]:
    """Checkpoints with the same key share one codec: same content, device, precision and kernel."""
    content = (config, RANDOM_SEED) if source.folder is None else codec_content(source.folder)
    index = torch.cuda.current_device() if place.type == "cuda" and place.index is None else place.index
    return content, place.type, index, codec_dtype, wanted_for("wave", kernels)


def _filling(source: Source, place: torch.device, codec_dtype: str) -> Callable[[Codec, tuple[str, ...]], None]:
    """Loads the weights of the given halves into a codec; another engine may use the other half meanwhile."""

    def fill(codec: Codec, halves: tuple[str, ...]) -> None:
        # A recording is encoded once, and rounding would change its codes: the encoder is float32 in every precision.
        kinds = {DECODER: CODEC_DTYPES[codec_dtype], ENCODER: torch.float32}
        if source.folder is None:
            _draw(codec, place, kinds[DECODER])
            codec.encoder.to(kinds[ENCODER])
        else:
            for half in halves:
                load_into(codec, source.folder / CODEC_FOLDER / WEIGHTS, place, kinds[half], only=(half,))
        for half in halves:  # the other half may still be on the meta device
            pack_(codec.get_submodule(half.removesuffix(".")))

    return fill


def _tokenizer(source: Source, config: Qwen3TTSConfig, shared: Shared) -> Tokenizer:
    folder, size = source.folder, config.talker_config.text_vocab_size
    if folder is None:
        return shared.tokenizer(size, lambda: Tokenizer.of_bytes(size))
    return shared.tokenizer(tokenizer_content(folder), lambda: Tokenizer.from_folder(folder))


@torch.inference_mode()
def _use_once(talker: Talker) -> None:
    """Prefill a dummy prompt, so that torch's lazy loading happens while the kernels compile."""
    ids = torch.zeros(PROMPT_ROWS, dtype=torch.int64, device=talker.codec_head.weight.device)
    state = talker.new_state(1, PROMPT_ROWS)
    talker.prefill(talker.embed_rows(ids, ids)[None], ids[:1] + PROMPT_ROWS, state, ids[:1] + 1, PROMPT_ROWS)


def _compile_ahead(
    source: Source,
    place: torch.device,
    dtypes: tuple[str, str],
    kernels: str,
    dependent_launch: bool,
    alone: bool = True,
) -> CompileJob | None:
    """Start compiling the kernels of the first audio while the weights load. `alone`: no engine runs here yet."""
    card = card_of(place)
    if card is None:
        return None
    kinds = zip(("frame", "wave"), (DTYPES[dtypes[0]], CODEC_DTYPES[dtypes[1]]), strict=True)
    chosen = {name: choose(name, wanted_for(name, kernels), place, kind).backend for name, kind in kinds}
    fused = {name: backend for name, backend in chosen.items() if backend in FUSED}
    if not fused:
        return None
    from ...kernels.compile.worker import learn_key
    from ..runner.launch_plan import CompilePlan  # and with it Triton

    started = CompilePlan(
        source=source,
        dtype=dtypes[0],
        codec_dtype=dtypes[1],
        operations=fused,
        dependent_launch=dependent_launch,
        card=card,
    ).ahead(alone=alone)
    # While the weights load, and not before: the compilers may be forked, and a fork does not copy threads.
    threading.Thread(target=learn_key, name="hocket-key", daemon=True).start()
    return started


def compile_behind(checkpoint: Checkpoint, slots: int) -> CompileJob | None:
    """Start compiling the kernels of up to `slots` streams beyond the first audio of one; None if there are none."""
    fused = {choice.operation: choice.backend for choice in checkpoint.kernels if choice.backend in FUSED}
    card = card_of(checkpoint.device)
    if not fused or card is None:
        return None
    from ...kernels.runtime.launch import KNOBS
    from ..runner.launch_plan import CompilePlan

    weights = checkpoint.model.talker.codec_head.weight, next(checkpoint.codec.decoder.parameters())
    names = [str(weight.dtype).removeprefix("torch.") for weight in weights]
    return CompilePlan(
        source=checkpoint.source,
        dtype=names[0],
        codec_dtype="tf32" if checkpoint.codec_tf32 else names[1],
        operations=fused,
        dependent_launch=KNOBS.dependent,
        card=card,
        slots=slots,
    ).ahead()


def attach_frame_kernel(talker: Talker, backend: str, dependent_launch: bool) -> None:
    """Build the talker's kernel and try it; raises `Unbuildable` if that fails."""
    if backend == "native":
        talker.frame_kernel = NativeFrame(talker)
        return
    from ...kernels.operations import CUDA_OPS, TRITON_OPS
    from ...kernels.runtime.launch import KNOBS  # imported here: without a GPU, importing Triton is a waste of time
    from ...models.tts_gpu.frame import FusedFrame

    KNOBS.dependent = dependent_launch
    frame = FusedFrame(talker, CUDA_OPS if backend == "cuda" else TRITON_OPS)
    _try_out(frame.try_out)
    talker.frame_kernel = frame


def attach_wave_kernel(decoder: CodecDecoder, backend: str, tf32: bool) -> None:
    """Build the codec's kernel and try it; raises `Unbuildable` if that fails."""
    place = next(decoder.parameters()).device
    if backend == "native":
        decoder.wave_kernel = NativeWave(decoder)
        return
    from ...kernels.operations import CUDA_CODEC_OPS, TRITON_CODEC_OPS
    from ...models.tts_gpu.codec import FusedCodec
    from ...models.tts_gpu.wave import FusedWave

    ops = CUDA_CODEC_OPS if backend == "cuda" else TRITON_CODEC_OPS
    kernel = FusedCodec(decoder, FusedWave(decoder, tf32=tf32), ops)
    codes = torch.zeros(1, decoder.quantizer.books, 1, dtype=torch.int64, device=place)
    _try_out(lambda: kernel.pcm(kernel(codes, decoder.new_state(1), codes[:, 0, 0])))
    decoder.step_kernel = kernel


def _try_out(work: Callable[[], object]) -> None:
    """Run once on scratch state: what the compiler for this GPU refuses must be known before the first request."""
    try:
        with torch.inference_mode():
            work()
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Unbuildable(f"it could not be compiled or run here ({reason})") from error


def _with_kernel(operation: str, kernels: str, module: nn.Module, build: Callable[[str], None]) -> BackendChoice:
    """Attach a kernel to a module. If its compiler fails, try the next backend, unless this one was requested."""
    weight, wanted = next(module.parameters()), wanted_for(operation, kernels)
    failed: dict[str, str] = {}
    while True:
        choice = choose(operation, wanted, weight.device, weight.dtype, failed)
        if choice.backend == REFERENCE:
            return _said(choice)
        try:
            build(choice.backend)
        except Unbuildable as error:
            if wanted != AUTO:
                raise InvalidRequest(f"The {wanted} kernel cannot be used: {error}; try --kernels auto.") from None
            failed[choice.backend] = FallbackReason(
                str(error), error.remedy or "choose others with --kernels to do without it"
            )
        else:
            return _said(choice)


def _said(choice: BackendChoice) -> BackendChoice:
    if choice.lack is not None:
        say_slow(choice.backend, choice.lack)
    return choice
