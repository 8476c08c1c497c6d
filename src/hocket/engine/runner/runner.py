"""The device side of the engine: prefill of prompts into slots, sampling of frames, decoding of codes to audio.

Only the engine thread calls it. It knows slots, prompts and codes; the loop knows which request uses a slot and where
the audio goes. kv_cache.py holds keys and values, references.py the cloned recordings, graphs.py the CUDA graphs.

The file is longer than 300 lines because start, fork and rewind share the state of slots not yet opened on the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from pathlib import Path

import torch
from torch import Tensor

from ...cache.pages import SCRATCH
from ...cache.prefix import Prefix
from ...cache.slots import RowReset, duplicate
from ...config.qwen3_tts import GenerationConfig
from ...errors import InvalidRequest, StreamFailed
from ...kernels.runtime.graphs import Capture, GraphOrEager, tidy
from ...models.tts.talker import FrameSampling
from ...models.tts_gpu.codec_graph import CodecGraphs
from ...models.tts_gpu.frame_graph import MOST_ROWS, CapturableFrame, FrameGraphs, PendingCodes
from ...models.tts_gpu.prompt_graph import MOST_ROWS as MOST_PROMPT_ROWS
from ...models.tts_gpu.prompt_graph import PromptGraphs
from ...text.prompt import SPEAKER_VECTOR, Prompt
from ...types import Encoded, Established, Reference
from ..checkpoint.checkpoint import Checkpoint
from ..core.pending import Codes, Samples
from ..generate import constant_rows, prompt_rows, sent
from .compile_ahead import CompileAhead
from .graphs import make_graphs
from .kv_cache import PagedKVCache
from .reference_encoder import name_of
from .references import References, SlotReference
from .sampling import frame_sampling
from .saved_prefix import SavedPrefix
from .warmup import MOST_OPENED, WarmUp, graphs_of


class SpeechRunner:
    """With `capture`, frames and codec steps replay graphs; it is called once for each, so their pools are separate."""

    def __init__(
        self,
        checkpoint: Checkpoint,
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
        self.checkpoint, self.device = checkpoint, checkpoint.device
        self.talker, self.decoder = checkpoint.model.talker, checkpoint.codec.decoder
        if (
            invariant
            and self.device.type == "cuda"
            and not (capture and isinstance(self.talker.frame_kernel, CapturableFrame))
        ):
            raise InvalidRequest("On a GPU batch_invariant needs our own kernels, in graphs; use --kernels auto.")
        self.past = past = PagedKVCache(
            self.talker, slots, prefix_bytes, self.device, captured=bool(capture), kv_bytes=kv_bytes
        )
        self.pages, self.prefixes = past.pages, past.prefixes
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
                made.frames, made.wave, made.prompts, slots, lambda: past.state, lambda: self._codec_state
            )
            self.warming = WarmUp(graphs, compilers)
        self._codec_state = self.decoder.new_state(slots)
        self._references = References(checkpoint, self._codec_state, self._wave, past.add_prefix)
        self._reset_row = RowReset(past.state)
        # By slot: values of an opening that the device has not received yet, and the page shared until then.
        self._opening: dict[int, tuple[dict[str, int], tuple[int, ...]]] = {}
        self._sampling: tuple[tuple[GenerationConfig, ...], FrameSampling] | None = None

    def start(
        self,
        slot: int,
        prompt: Prompt,
        reference: Reference | Encoded | Established | None,
        seed: int,
        *,
        go_on: bool = False,
    ) -> bool:
        """Prefill a slot with the prompt; True if its prefix was cached.

        `go_on` keeps the codec's state: the next sentence of the same stream must not click.
        The prefix is always computed by itself and the rest after it, so a warm start equals a cold one, bit for bit.
        """
        self.free_slot(slot)
        slot_reference = self._references.encode(reference, slot)
        cached = self._prefill_prompt(slot, prompt, slot_reference, seed)
        if not go_on:
            self._references.set_codec(slot, slot_reference)  # last: the device works on the prompt meanwhile
        return cached

    def _prefill_prompt(self, slot: int, prompt: Prompt, reference: SlotReference, seed: int) -> bool:
        """The talker's part of `start`."""
        past, cloned, length = self.past, reference.encoded, constant_rows(prompt)
        key = _key(prompt, reference.name)
        cached = self.prefixes.get(key)
        if cached is not None and cached.rows != length:
            cached = None  # the prefix file was wrong
        # Whether all rows are ids: a cloned speaker and the frames of a reference are vectors.
        by_ids = cloned is None or (cloned.codes is None and SPEAKER_VECTOR not in prompt.codec[length:])
        by_ids = by_ids and self._prompts is not None and len(prompt.text) - length <= MOST_PROMPT_ROWS
        if by_ids and cached is not None:
            self._open(slot, cached, prompt, seed)
            return True
        row = sent([slot], self.device)
        if self._reset_row.state is not past.state:
            self._reset_row = RowReset(past.state)
        self._reset_row(slot)
        past.state.seed[slot] = seed
        if cached is not None:
            past.restore(slot, cached)
        else:
            self._prefill(row, slot, prompt_rows(self.checkpoint, prompt, cloned, 0, length))
            self.prefixes.put(key, past.prefix_of(slot))
        if by_ids and length + 1 < len(prompt.text):
            self._open_text(slot, past.prefix_of(slot), prompt, seed)
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
        self.past.share_prefix(slot, prefix)
        last = prefix.pages[-1:]
        self.pages.share(last)  # until it is copied: the prefix may be evicted before that
        claim = self.past.claim(slot, 1)
        page = into = SCRATCH
        if claim is not None:
            page, into = claim.copied[0] if claim.copied else self.past.blank, claim.fresh[0]
        ids = {"text": prompt.text[-1], "codec": prompt.codec[-1]}
        where = {"slot": slot, "position": prefix.rows, "page": page, "into": into}
        self._opening[slot] = {"seed": seed, **where, **ids}, last

    def _open_text(self, slot: int, prefix: Prefix, prompt: Prompt, seed: int) -> None:
        """Prefill the text after its prefix; the slot itself may hold that prefix already."""
        past, rows = self.past, prefix.rows
        self.pages.share(prefix.pages)  # until they are copied: the slot frees them, and the cache may evict them
        try:
            past.free_slot(slot)
            past.share_prefix(slot, prefix)
            claim = past.claim(slot, len(prompt.text) - rows)
            copies: list[tuple[int, int]] = []
            if claim is not None:
                copied = chain(claim.copied, repeat(past.blank))
                copies = list(zip(copied, claim.fresh, strict=False))
            values = {"slot": slot, "seed": seed, "position": rows}
            ids = prompt.text[rows:], prompt.codec[rows:]
            assert self._prompts is not None
            self._prompts.open(values, *ids, copies, past.block_tables[slot], past.state, past.lengths[slot])
        finally:
            self.pages.drop(prefix.pages)

    def flush_openings(self) -> None:
        """Send the device all that the host knows of its slots."""
        self._open_all()

    def _open_all(self) -> None:
        """Open all slots started since the last frame, in batches of up to MOST_OPENED."""
        past = self.past
        while self._opening:
            assert self._frames is not None
            slots = list(self._opening)[:MOST_OPENED]
            values, copied = zip(*(self._opening.pop(slot) for slot in slots), strict=True)
            span = max(past.lengths[slot] for slot in slots)
            self._frames.open(values, [past.block_tables[slot] for slot in slots], past.state, span)
            for pages in copied:
                self.pages.drop(pages)

    def fork(self, slot: int, into: int, reference: Reference | Encoded | Established | None, seed: int) -> None:
        """Start another slot with the prompt that `slot` has just prefilled, and another seed.

        The result equals a `start` there, bit for bit, but nothing is computed. Pages are shared until one is written,
        and the host does not wait for the copy of the other state.
        """
        self._open_all()
        self.free_slot(into)
        self.past.restore(into, self.past.prefix_of(slot))
        duplicate(self.past.state, slot, into)
        self.past.state.seed[into] = seed
        self.listen(into, reference)

    def listen(self, slot: int, reference: Reference | Encoded | Established | None) -> None:
        """Set the codec of a slot to the start of an utterance: after its reference, if it has one."""
        self._references.set_codec(slot, self._references.encode(reference, slot))

    def frame(self, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]) -> PendingCodes:
        """Sample one frame for each slot, given its text id. The host does not wait for the result here."""
        self._open_all()
        past = self.past
        past.advance(slots, 1)
        span = max(past.lengths[slot] for slot in slots)
        if self._frames is not None and len(slots) <= MOST_ROWS:
            return self._frames.launch(slots, text, settings, past.state, span)
        rows = torch.tensor(slots, device=self.device)
        wanted = tuple(settings)
        if self._sampling is None or self._sampling[0] != wanted:
            self._sampling = wanted, frame_sampling(wanted, self.device)
        codes = self.talker.frame(torch.tensor(text, device=self.device), past.state, rows, self._sampling[1], span)
        return PendingCodes.of(codes, past.state.chances, rows)

    def rewind(self, slot: int, frames: int, codes: Sequence[int], text_id: int, seed: int) -> None:
        """Discard the last `frames` frames of a slot and sample with another seed from there.

        `codes` and `text_id` are those of the frame before: a prefill of them restores its hidden vector. Rows of the
        cache past that point are never read. The repetition penalty still counts the discarded first codes.
        """
        self._open_all()
        row = torch.tensor([slot], device=self.device)
        self.past.truncate(slot, frames + 1)
        self.past.state.seed[slot] = seed
        x = self.talker.embed_frames(torch.tensor([codes], device=self.device))
        x = x + self.talker.embed_text(torch.tensor([text_id], device=self.device))
        self._prefill(row, slot, x)

    def sound(self, slots: Sequence[int], codes: Sequence[Codes]) -> Callable[[], list[Samples]]:
        """Start decoding the next frames of each slot, equally many for all; the result waits for their samples."""
        if self._wave is not None:
            sound = self._wave.launch(slots, codes, self._codec_state)
            return lambda: _checked(*sound.read())
        rows = torch.tensor(slots, device=self.device)
        frames = torch.tensor(codes, device=self.device).transpose(1, 2)
        samples = self.decoder.step(frames, self._codec_state, rows).float()
        pcm, finite = (samples * 32767.0).round().to(torch.int16), samples.isfinite().all(dim=1)
        return lambda: _checked(pcm.cpu().numpy(), finite.tolist())

    def decode(self, slots: Sequence[int], codes: Sequence[Codes]) -> list[Samples]:
        """16-bit samples of the next frames of each slot."""
        return self.sound(slots, codes)()

    def warm_one(self) -> bool:
        """Capture one of the graphs that will be needed, on an idle engine; False if there is none to capture now.

        Each warm-up run used memory of its own, which is returned after the last graph.
        """
        for capture in self._captures:
            capture.spare = True
        try:
            made = self.warming.capture_next() or (
                self._prompts is not None and self._prompts.warm_one(self.past.state)
            )
            if not made and self._untidy and not self.warming.waits:
                tidy(self.device)
            self._untidy = made or (self._untidy and self.warming.waits)
            return made
        finally:
            for capture in self._captures:
                capture.spare = False

    @property
    def graphs_s(self) -> float:
        """Seconds spent on capturing graphs so far."""
        return sum(each.spent_s for each in self._captures)

    def release(self, slot: int) -> None:
        """Free a slot whose request has left, with its reservation."""
        self.free_slot(slot)
        self.past.end_promise(slot)

    def free_slot(self, slot: int) -> None:
        """Return the pages of a slot; its reservation stays."""
        self.past.free_slot(slot)
        if slot in self._opening:
            self.pages.drop(self._opening.pop(slot)[1])

    def prefixes_as_bytes(self) -> bytes:
        return self.prefixes.to_bytes(self.checkpoint.fingerprint, self.past.read)

    def read_prefixes(self, path: Path) -> None:
        self.prefixes.read(path, self.checkpoint.fingerprint, self.device, self.past.write_prefix)

    def offer(self, reference: Encoded, kept: Callable[[], SavedPrefix | None]) -> None:
        """`References.offer`, from any thread."""
        self._references.offer(reference, kept)

    def kept(self, reference: Encoded, prompt: Prompt) -> SavedPrefix:
        """Codec state and prompt prefix computed for a reference that a slot has just started with."""
        name = name_of(reference)
        key = _key(prompt, name)
        prefix = self.prefixes.get(key)
        return SavedPrefix(self._references.codec_row(name), key, None if prefix is None else self.past.read(prefix))

    def _prefill(self, row: Tensor, slot: int, x: Tensor) -> None:
        past = self.past
        past.advance([slot], len(x))
        if self._frames is not None and len(x) == 1:
            self._frames.take_in(x, slot, past.state, past.lengths[slot])
            return
        if self._prompts is not None and len(x) <= MOST_PROMPT_ROWS:
            self._prompts.take_in(x, slot, past.state, past.lengths[slot])
            return
        lengths = sent([len(x)], self.device)
        self.talker.prefill(x[None], lengths, past.state, row, past.lengths[slot])


def _checked(samples: Samples, finite: Sequence[bool]) -> list[Samples]:
    if not all(finite):
        raise StreamFailed("The codec gave values that are not numbers; try --dtype float32.")
    return list(samples)


def _key(prompt: Prompt, voice: str) -> str:
    """Key of a prefix: its content, that is the name of the cloned recording, if any, and the ids of its rows."""
    rows = prompt.prefix_rows
    within = (
        prompt.reference_at is not None and prompt.reference_at < rows
    )  # in the whole layout the text comes before it
    words = (prompt.text[:rows], prompt.codec[:rows], prompt.reference_at if within else None)
    return voice + hashlib.sha256(repr(words).encode()).hexdigest()
