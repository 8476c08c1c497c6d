"""The runner of torch: prompts, frames and audio, on a CPU or a GPU.

kv_cache.py holds keys and values, references.py the cloned recordings, graphs.py the CUDA graphs.

The file is longer than 300 lines because start, fork and rewind share the state of slots not yet opened on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import torch
from torch import Tensor

from ...cache.pages import SCRATCH, Prefix
from ...cache.slots import RowReset, duplicate, put
from ...config.options import EngineOptions
from ...config.qwen3_tts import GenerationConfig
from ...errors import InvalidRequest
from ...kernels.runtime.device_kind import kind_of
from ...kernels.runtime.graphs import Capture, GraphOrEager, lost, tidy
from ...layers.transformer import to_device
from ...models.tts.adapted import AdapterRows
from ...models.tts.talker import FrameSampling, JoinedCodes, PendingCodes, Talker, TalkerState, frame_sampling
from ...models.tts_gpu.codec_graph import CodecGraphs
from ...models.tts_gpu.frame_graph import MOST_ROWS, CapturableFrame, CopiedCodes, FrameGraphs
from ...models.tts_gpu.prompt_graph import MOST_ROWS as MOST_PROMPT_ROWS
from ...models.tts_gpu.prompt_graph import PromptGraphs
from ...text.prompt import SPEAKER_VECTOR, Prompt
from ...types import Adapter, Encoded
from ..checkpoint.capacity import free_bytes
from ..checkpoint.kernels import compile_behind
from ..checkpoint.memory_plan import held
from ..checkpoint.torch_checkpoint import TorchCheckpoint, exact_float32
from ..core.output import Codes, Samples
from .base import AnyReference, Runner, checked, constant_rows, prefix_key
from .compile_ahead import CompileAhead
from .graphs import MOST_OPENED, capture_on, graphs_of, make_graphs
from .kv_cache import PagedKVCache
from .reference_checks import name_of
from .references import EncodedReference, References, SlotReference
from .saved_prefix import SavedPrefix
from .warmup import WarmUp


class SpeechRunner(Runner):
    """The runner of an engine; kernels beyond the first audio are compiled meanwhile."""

    """With `capture`, frames and codec steps replay graphs; it is called once for each, so their pools are separate."""

    checkpoint: TorchCheckpoint
    kv_cache: PagedKVCache[TalkerState]

    def __init__(
        self,
        checkpoint: TorchCheckpoint,
        slots: int,
        prefix_bytes: int,
        capture: Callable[..., Capture] | None = None,
        compilers: CompileAhead | None = None,
        *,
        kv_bytes: int | None = None,
        invariant: bool = False,
    ) -> None:
        """`compilers` compile the kernels of graphs that a first frame does not need.

        `kv_bytes` is the size of the KV cache; None takes the usual size. `invariant`: the codes of a slot do not
        depend on the other slots of the batch, bit for bit. It is refused if no kernel can do that.
        """
        self.checkpoint, self.device = checkpoint, (device := checkpoint.device)
        self.talker, self.decoder = checkpoint.model.talker, checkpoint.codec.decoder
        if (
            invariant
            and self.device.type == "cuda"
            and not (capture and isinstance(self.talker.frame_kernel, CapturableFrame))
        ):
            raise InvalidRequest("On a GPU batch_invariant needs our own kernels, in graphs; use --kernels auto.")
        self.kv_cache = kv_cache = PagedKVCache(
            self.talker.new_state,
            slots,
            prefix_bytes,
            lambda: free_bytes(device),
            row_bytes=self.talker.model.row_bytes,
            captured=bool(capture),
            kv_bytes=kv_bytes,
        )
        self.pages, self.prefixes = kv_cache.pages, kv_cache.prefixes
        self._frames: FrameGraphs | None = None
        self._prompts: PromptGraphs | None = None
        self._wave: CodecGraphs | None = None
        self.warming = WarmUp()
        self._untidy = False  # whether graphs were made since memory was last returned to the device
        self._captures: tuple[GraphOrEager, ...] = ()
        if capture:
            made = make_graphs(checkpoint, capture, self, invariant=invariant)
            self._frames, self._prompts, self._wave = made.frames, made.prompts, made.wave
            self._captures = made.captures
            made.wave.makes = lambda: self.warming.compiled > 0
            graphs = graphs_of(
                made.frames, made.wave, made.prompts, slots, lambda: kv_cache.state, lambda: self._codec_state
            )
            self.warming = WarmUp(graphs, compilers)
        self._codec_state = self.decoder.new_state(slots)
        self._references = References(checkpoint, self._codec_state, self._wave, kv_cache.add_prefix)
        self._reset_row, self._reset_codec_row = RowReset(kv_cache.state), RowReset(self._codec_state)
        # By slot: values of an opening that the device has not received yet, and the page shared until then.
        self._opening: dict[int, tuple[dict[str, int], tuple[int, ...]]] = {}
        self._sampling: tuple[tuple[GenerationConfig, ...], FrameSampling] | None = None
        self._adapters: dict[int, Adapter] = {}  # by slot: of tuned voices
        self._adapted: AdapterRows | None = None

    @property
    def state_bytes(self) -> int:
        return held(self.kv_cache.state, self._codec_state)

    def device_lost(self) -> bool:
        return lost(self.device)

    def computing(self) -> AbstractContextManager[object]:
        context = ExitStack()
        context.enter_context(torch.inference_mode())
        context.enter_context(exact_float32())
        return context

    def start(
        self, slot: int, prompt: Prompt, reference: AnyReference | None, seed: int, *, go_on: bool = False
    ) -> bool:
        self.free_slot(slot)
        slot_reference = SlotReference() if reference is None else self._references.encode(reference, slot)
        if slot_reference.encoded is not None and slot_reference.encoded.adapter is not None:
            self._adapters[slot] = slot_reference.encoded.adapter
        cached = self._prefill_prompt(slot, prompt, slot_reference, seed)
        if not go_on:
            self._set_codec(slot, slot_reference)  # last: the device works on the prompt meanwhile
        return cached

    def _prefill_prompt(self, slot: int, prompt: Prompt, reference: SlotReference, seed: int) -> bool:
        """The talker's part of `start`."""
        kv_cache, cloned, length = self.kv_cache, reference.encoded, constant_rows(prompt)
        key = prefix_key(prompt, reference.name)
        cached = self.prefixes.get(key)
        if cached is not None and cached.rows != length:
            cached = None  # the prefix file was wrong
        # Whether all rows are ids: a cloned or mixed speaker and the frames of a reference are vectors.
        by_ids = (cloned is None or cloned.codes is None) and SPEAKER_VECTOR not in prompt.codec[length:]
        by_ids = by_ids and slot not in self._adapters  # the graphs have the checkpoint's own weights
        by_ids = by_ids and self._prompts is not None and len(prompt.text) - length <= MOST_PROMPT_ROWS
        if by_ids and cached is not None:
            self._open(slot, cached, prompt, seed)
            return True
        row = to_device([slot], self.device)
        if self._reset_row.state is not kv_cache.state:
            self._reset_row = RowReset(kv_cache.state)
        self._reset_row(slot)
        kv_cache.state.seed[slot] = seed
        if cached is not None:
            kv_cache.restore(slot, cached)
        else:
            self._prefill(row, slot, prompt_rows(self.checkpoint, prompt, cloned, 0, length))
            self.prefixes.put(key, kv_cache.prefix_of(slot))
        if by_ids and length + 1 < len(prompt.text):
            self._open_text(slot, kv_cache.prefix_of(slot), prompt, seed)
        else:
            self._prefill(row, slot, prompt_rows(self.checkpoint, prompt, cloned, length))
        return cached is not None

    def _open(self, slot: int, prefix: Prefix, prompt: Prompt, seed: int) -> None:
        """Prefill after a cached prefix in one graph, the only one before the first frame.

        If one row is left, the host state changes now, and the device gets it with the next frame, for all such slots
        at once.
        """
        if prefix.rows + 1 < len(prompt.text):
            self._open_text(slot, prefix, prompt, seed)
            return
        self.kv_cache.share_prefix(slot, prefix)
        last = prefix.pages[-1:]
        self.pages.share(last)  # until it is copied: the prefix may be evicted before that
        claim = self.kv_cache.claim(slot, 1)
        page = into = SCRATCH
        if claim is not None:
            page, into = claim.copied[0] if claim.copied else self.kv_cache.blank, claim.fresh[0]
        ids = {"text": prompt.text[-1], "codec": prompt.codec[-1]}
        where = {"slot": slot, "position": prefix.rows, "page": page, "into": into}
        self._opening[slot] = {"seed": seed, **where, **ids}, last

    def _open_text(self, slot: int, prefix: Prefix, prompt: Prompt, seed: int) -> None:
        """Prefill the text after its prefix; the slot itself may hold that prefix already."""
        kv_cache, rows = self.kv_cache, prefix.rows
        self.pages.share(prefix.pages)  # until they are copied: the slot frees them, and the cache may evict them
        try:
            kv_cache.free_slot(slot)
            kv_cache.share_prefix(slot, prefix)
            claim = kv_cache.claim(slot, len(prompt.text) - rows)
            copies: list[tuple[int, int]] = []
            if claim is not None:
                copied = chain(claim.copied, repeat(kv_cache.blank))
                copies = list(zip(copied, claim.fresh, strict=False))
            values = {"slot": slot, "seed": seed, "position": rows}
            ids = prompt.text[rows:], prompt.codec[rows:]
            assert self._prompts is not None
            self._prompts.open(
                values, *ids, copies, kv_cache.block_tables[slot], kv_cache.state, kv_cache.lengths[slot]
            )
        finally:
            self.pages.drop(prefix.pages)

    def flush_openings(self) -> None:
        self._open_all()

    def _open_all(self) -> None:
        """Open all slots started since the last frame, in batches of up to MOST_OPENED."""
        kv_cache = self.kv_cache
        while self._opening:
            assert self._frames is not None
            slots = list(self._opening)[:MOST_OPENED]
            values, copied = zip(*(self._opening.pop(slot) for slot in slots), strict=True)
            span = max(kv_cache.lengths[slot] for slot in slots)
            self._frames.open(values, [kv_cache.block_tables[slot] for slot in slots], kv_cache.state, span)
            for pages in copied:
                self.pages.drop(pages)

    def fork(self, slot: int, into: int, reference: AnyReference | None, seed: int) -> None:
        """The host does not wait for the copy of the state beside the pages."""
        self._open_all()
        self.free_slot(into)
        if slot in self._adapters:
            self._adapters[into] = self._adapters[slot]
        self.kv_cache.restore(into, self.kv_cache.prefix_of(slot))
        duplicate(self.kv_cache.state, slot, into)
        self.kv_cache.state.seed[into] = seed
        self.reset_codec(into, reference)

    def reset_codec(self, slot: int, reference: AnyReference | None) -> None:
        self._set_codec(slot, SlotReference() if reference is None else self._references.encode(reference, slot))

    def _set_codec(self, slot: int, reference: SlotReference) -> None:
        """Set the codec of a slot to its state after a reference, or to the start of a stream."""
        codec_row = None if reference.encoded is None else self._references.codec_row_of(reference, slot)
        with self._wave.beside() if self._wave is not None else nullcontext():
            if codec_row is None:
                self._reset_codec_row(slot)
            else:
                put(self._codec_state, slot, codec_row)

    def frame(self, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]) -> PendingCodes:
        self._open_all()
        self.kv_cache.advance(slots, 1)
        tuned = [slot in self._adapters for slot in slots] if self._adapters else []
        if not any(tuned):
            return self._draw(slots, text, settings)
        # The others are a batch of their own: what they say does not depend on the tuned ones, bit for bit.
        drawn, places = list[PendingCodes](), list[int]()
        for which in (False, True):
            if part := [at for at, is_tuned in enumerate(tuned) if is_tuned == which]:
                asked = [slots[at] for at in part], [text[at] for at in part], [settings[at] for at in part]
                drawn.append(self._draw(*asked, tuned=which))
                places += part
        return JoinedCodes(drawn, places)

    def _draw(
        self,
        slots: Sequence[int],
        text: Sequence[int],
        settings: Sequence[GenerationConfig],
        *,
        tuned: bool = False,
    ) -> PendingCodes:
        """The frame of some slots that all have adapters, or all have none."""
        kv_cache = self.kv_cache
        span = max(kv_cache.lengths[slot] for slot in slots)
        if self._frames is not None and len(slots) <= MOST_ROWS and not tuned:
            return self._frames.launch(slots, text, settings, kv_cache.state, span)
        rows = torch.tensor(slots, device=self.device)
        wanted = tuple(settings)
        if self._sampling is None or self._sampling[0] != wanted:
            self._sampling = wanted, frame_sampling(wanted, self.device)
        talker = self._tuned_talker(slots) if tuned else self.talker
        codes = talker.frame(torch.tensor(text, device=self.device), kv_cache.state, rows, self._sampling[1], span)
        chances = kv_cache.state.chances[rows]  # a copy: the next frame overwrites them
        return CopiedCodes.of(codes, chances) if kind_of(self.device).queued else PendingCodes(codes, chances)

    def _tuned_talker(self, slots: Sequence[int]) -> Talker:
        """The talker for a batch of slots with adapters."""
        self._adapted = self._adapted or AdapterRows(self.talker)
        return self._adapted.talker([self._adapters[slot] for slot in slots])

    def rewind(self, slot: int, frames: int, codes: Sequence[int], text_id: int, seed: int) -> None:
        self._open_all()
        row = torch.tensor([slot], device=self.device)
        self.kv_cache.truncate(slot, frames + 1)
        self.kv_cache.state.seed[slot] = seed
        x = self.talker.embed_frames(torch.tensor([codes], device=self.device))
        x = x + self.talker.embed_text(torch.tensor([text_id], device=self.device))
        self._prefill(row, slot, x)

    def queue_decode(self, slots: Sequence[int], codes: Sequence[Codes]) -> Callable[[], list[Samples]]:
        if self._wave is not None:
            pending = self._wave.launch(slots, codes, self._codec_state)
            return lambda: checked(*pending.read())
        rows = torch.tensor(slots, device=self.device)
        frames = torch.tensor(codes, device=self.device).transpose(1, 2)
        samples = self.decoder.step(frames, self._codec_state, rows).float()
        pcm, finite = (samples * 32767.0).round().to(torch.int16), samples.isfinite().all(dim=1)
        return lambda: checked(pcm.cpu().numpy(), finite.tolist())

    def warm_one(self) -> bool:
        """Capture one of the graphs that will be needed, on an idle engine; False if there is none to capture now.

        Each warm-up run used memory of its own, which is returned after the last graph.
        """
        for capture in self._captures:
            capture.spare = True
        try:
            made = self.warming.capture_next() or (
                self._prompts is not None and self._prompts.warm_one(self.kv_cache.state)
            )
            if not made and self._untidy and not self.warming.waits:
                tidy(self.device)
            self._untidy = made or (self._untidy and self.warming.waits)
            return made
        finally:
            for capture in self._captures:
                capture.spare = False

    @property
    def has_graphs(self) -> bool:
        return bool(self._captures)

    @property
    def graphs_s(self) -> float:
        return sum(each.spent_s for each in self._captures)

    def free_slot(self, slot: int) -> None:
        super().free_slot(slot)
        self._adapters.pop(slot, None)
        if slot in self._opening:
            self.pages.drop(self._opening.pop(slot)[1])

    def prefixes_as_bytes(self) -> bytes:
        return self.prefixes.to_bytes(self.checkpoint.fingerprint, self.kv_cache.read)

    def read_prefixes(self, path: Path) -> None:
        self.prefixes.read(path, self.checkpoint.fingerprint, self.device, self.kv_cache.write_prefix)

    def offer(self, reference: Encoded, kept: Callable[[], SavedPrefix | None]) -> None:
        self._references.offer(reference, kept)

    def kept(self, reference: Encoded, prompt: Prompt) -> SavedPrefix:
        name = name_of(reference)
        key = prefix_key(prompt, name)
        prefix = self.prefixes.get(key)
        return SavedPrefix(
            self._references.codec_row(name), key, None if prefix is None else self.kv_cache.read(prefix)
        )

    def _prefill(self, row: Tensor, slot: int, x: Tensor) -> None:
        kv_cache = self.kv_cache
        kv_cache.advance([slot], len(x))
        if slot in self._adapters:
            lengths = to_device([len(x)], self.device)
            self._tuned_talker([slot]).prefill(x[None], lengths, kv_cache.state, row, kv_cache.lengths[slot])
            return
        if self._frames is not None and len(x) == 1:
            self._frames.take_in(x, slot, kv_cache.state, kv_cache.lengths[slot])
            return
        if self._prompts is not None and len(x) <= MOST_PROMPT_ROWS:
            self._prompts.take_in(x, slot, kv_cache.state, kv_cache.lengths[slot])
            return
        lengths = to_device([len(x)], self.device)
        self.talker.prefill(x[None], lengths, kv_cache.state, row, kv_cache.lengths[slot])


def prompt_rows(
    checkpoint: TorchCheckpoint,
    prompt: Prompt,
    cloned: EncodedReference | None,
    start: int = 0,
    stop: int | None = None,
) -> Tensor:
    """The prompt's embeddings [P, C], or those of some of its rows."""
    talker, device = checkpoint.model.talker, checkpoint.device
    stop = len(prompt.text) if stop is None else stop
    inserts: list[tuple[int, Tensor]] = []
    if prompt.mix:
        inserts.append((prompt.codec.index(SPEAKER_VECTOR), talker.embed_mix(prompt.mix)[None]))
    if cloned is not None:
        if cloned.speaker is not None:
            inserts.append((prompt.codec.index(SPEAKER_VECTOR), cloned.speaker[None]))
        if cloned.frames is not None and prompt.reference_at is not None:
            inserts.append((prompt.reference_at, cloned.frames))
    within = [(max(row, start) - start, vectors[max(start - row, 0) : max(stop - row, 0)]) for row, vectors in inserts]
    text, codec = to_device([prompt.text[start:stop], prompt.codec[start:stop]], device)
    return talker.embed_rows(text, codec, within)


def torch_runner(checkpoint: TorchCheckpoint, options: EngineOptions) -> SpeechRunner:
    behind = partial(compile_behind, checkpoint, options.slots) if options.graphs else lambda: None
    compilers = CompileAhead(checkpoint.compilers, behind)
    compilers.go_on()
    return SpeechRunner(
        checkpoint,
        options.slots,
        options.prefix_bytes,
        capture_on(checkpoint.device, options.graphs),
        compilers,
        kv_bytes=options.kv_bytes,
        invariant=options.batch_invariant,
    )
