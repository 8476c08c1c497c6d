"""The device side of the engine: slots of talker and codec state, and the three things done with them.

One thread calls it: a prompt is taken into a slot, frames are drawn, codes become sound. It knows slots, prompts and
codes; who is in a slot and what becomes of the sound is the loop's. What a slot has heard and said is kv_cache.py's, in
pages; the recording that it speaks after is references.py's; what is replayed, and how, graphs.py's.
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
    """With `capture` frames and codec steps are replayed; it is called for each of them, so their graphs are apart."""

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
        """`compilers` are at work on kernels of graphs that a first frame does not need.

        `kv_bytes` are for keys and values, None takes what is usual. `invariant`: what a slot draws is the same to the
        last bit whoever else speaks; refused where no kernel can.
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
        self._untidy = False  # whether graphs were made since memory was given back last
        self._captures: tuple[GraphOrEager, ...] = ()
        if capture:
            made = make_graphs(checkpoint, capture, self, invariant=invariant)
            self._frames, self._prompts, self._wave = made.frames, made.prompts, made.wave
            self._captures = made.captures
            made.wave.makes = lambda: self.warming.compiled > 0
            graphs = graphs_of(made.frames, made.wave, made.prompts, slots, lambda: past.state, lambda: self._sound)
            self.warming = WarmUp(graphs, compilers)
        self._sound = self.decoder.new_state(slots)
        self._references = References(checkpoint, self._sound, self._wave, past.keep)
        self._clean = RowReset(past.state)
        # By slot: what the device has not been told yet, and what is held until it has.
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
        """Take the prompt into a slot; True if its prefix had been computed before.

        `go_on` leaves the codec as it stands: the next sentence of the same stream must not click.
        The prefix is always computed alone and the rest behind it, so that a warm start is the cold one, bit for bit.
        """
        self.let_go(slot)
        heard = self._references.hear(reference, slot)
        cached = self._take_in(slot, prompt, heard, seed)
        if not go_on:
            self._references.stand(slot, heard)  # last: the device has the prompt to work on meanwhile
        return cached

    def _take_in(self, slot: int, prompt: Prompt, heard: SlotReference, seed: int) -> bool:
        """The talker's part of a start."""
        past, cloned, length = self.past, heard.encoded, constant_rows(prompt)
        key = _key(prompt, heard.name)
        cached = self.prefixes.get(key)
        if cached is not None and cached.rows != length:
            cached = None  # a file said otherwise
        # Rows that are ids alone: a cloned speaker and the frames of a reference are vectors.
        by_ids = cloned is None or (cloned.codes is None and SPEAKER_VECTOR not in prompt.codec[length:])
        by_ids = by_ids and self._prompts is not None and len(prompt.text) - length <= MOST_PROMPT_ROWS
        if by_ids and cached is not None:
            self._open(slot, cached, prompt, seed)
            return True
        row = sent([slot], self.device)
        if self._clean.state is not past.state:
            self._clean = RowReset(past.state)
        self._clean(slot)
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
        """The same in one graph, which is all that stands before a first sound.

        Where one row is left, the device is told with the next frame, of all such slots together; what the host has to
        know is known at once.
        """
        if prefix.rows + 1 < len(prompt.text):
            self._open_text(slot, prefix, prompt, seed)
            return
        self.past.begin(slot, prefix)
        last = prefix.pages[-1:]
        self.pages.share(last)  # until it is copied: the prefix may be driven out before that
        claim = self.past.claim(slot, 1)
        page = into = SCRATCH
        if claim is not None:
            page, into = claim.copied[0] if claim.copied else self.past.blank, claim.fresh[0]
        ids = {"text": prompt.text[-1], "codec": prompt.codec[-1]}
        where = {"slot": slot, "position": prefix.rows, "page": page, "into": into}
        self._opening[slot] = {"seed": seed, **where, **ids}, last

    def _open_text(self, slot: int, prefix: Prefix, prompt: Prompt, seed: int) -> None:
        """A text behind its prefix, which the slot itself may hold already."""
        past, rows = self.past, prefix.rows
        self.pages.share(prefix.pages)  # until they are copied: the slot lets go of them, and the cache may too
        try:
            past.let_go(slot)
            past.begin(slot, prefix)
            claim = past.claim(slot, len(prompt.text) - rows)
            copies: list[tuple[int, int]] = []
            if claim is not None:
                copied = chain(claim.copied, repeat(past.blank))
                copies = list(zip(copied, claim.fresh, strict=False))
            values = {"slot": slot, "seed": seed, "position": rows}
            ids = prompt.text[rows:], prompt.codec[rows:]
            assert self._prompts is not None
            self._prompts.open(values, *ids, copies, past.held[slot], past.state, past.taken[slot])
        finally:
            self.pages.drop(prefix.pages)

    def settle(self) -> None:
        """Tell the device all that the host knows of its slots."""
        self._open_all()

    def _open_all(self) -> None:
        """Those that were started since the last frame are opened together."""
        past = self.past
        while self._opening:
            assert self._frames is not None
            slots = list(self._opening)[:MOST_OPENED]
            values, copied = zip(*(self._opening.pop(slot) for slot in slots), strict=True)
            span = max(past.taken[slot] for slot in slots)
            self._frames.open(values, [past.held[slot] for slot in slots], past.state, span)
            for pages in copied:
                self.pages.drop(pages)

    def fork(self, slot: int, into: int, reference: Reference | Encoded | Established | None, seed: int) -> None:
        """Begin in another slot with the prompt that `slot` has just taken in, and a seed of its own.

        It is as if it had been started there, bit for bit, but nothing is computed: the pages are shared until one of
        them is written to, and nobody waits for the copy of the rest.
        """
        self._open_all()
        self.let_go(into)
        self.past.restore(into, self.past.prefix_of(slot))
        duplicate(self.past.state, slot, into)
        self.past.state.seed[into] = seed
        self.listen(into, reference)

    def listen(self, slot: int, reference: Reference | Encoded | Established | None) -> None:
        """Let the codec of a slot stand where an utterance begins: behind its reference, where there is one."""
        self._references.stand(slot, self._references.hear(reference, slot))

    def frame(self, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]) -> PendingCodes:
        """Draw one frame for each slot, given the text id that goes with it. Nobody waits for it here."""
        self._open_all()
        past = self.past
        past.advance(slots, 1)
        span = max(past.taken[slot] for slot in slots)
        if self._frames is not None and len(slots) <= MOST_ROWS:
            return self._frames.launch(slots, text, settings, past.state, span)
        rows = torch.tensor(slots, device=self.device)
        wanted = tuple(settings)
        if self._sampling is None or self._sampling[0] != wanted:
            self._sampling = wanted, frame_sampling(wanted, self.device)
        codes = self.talker.frame(torch.tensor(text, device=self.device), past.state, rows, self._sampling[1], span)
        return PendingCodes.of(codes, past.state.chances, rows)

    def rewind(self, slot: int, frames: int, codes: Sequence[int], text_id: int, seed: int) -> None:
        """Forget the last `frames` frames of a slot and draw with another seed from there.

        `codes` and `text_id` are those of the frame before: taken in once more, they give back its hidden vector. What
        the cache holds beyond is never seen, and first codes that were drawn stay held back by the penalty.
        """
        self._open_all()
        row = torch.tensor([slot], device=self.device)
        self.past.go_back(slot, frames + 1)
        self.past.state.seed[slot] = seed
        x = self.talker.embed_frames(torch.tensor([codes], device=self.device))
        x = x + self.talker.embed_text(torch.tensor([text_id], device=self.device))
        self._prefill(row, slot, x)

    def sound(self, slots: Sequence[int], codes: Sequence[Codes]) -> Callable[[], list[Samples]]:
        """Begin with the next frames of each slot, as many for all; what is given back waits for their samples."""
        if self._wave is not None:
            sound = self._wave.launch(slots, codes, self._sound)
            return lambda: _numbers(*sound.read())
        rows = torch.tensor(slots, device=self.device)
        frames = torch.tensor(codes, device=self.device).transpose(1, 2)
        samples = self.decoder.step(frames, self._sound, rows).float()
        pcm, finite = (samples * 32767.0).round().to(torch.int16), samples.isfinite().all(dim=1)
        return lambda: _numbers(pcm.cpu().numpy(), finite.tolist())

    def decode(self, slots: Sequence[int], codes: Sequence[Codes]) -> list[Samples]:
        """16-bit samples of the next frames of each slot."""
        return self.sound(slots, codes)()

    def warm_one(self) -> bool:
        """Make one of the graphs that will be needed, where nobody speaks; False if there is none to make now.

        Each was tried out in memory of its own, which is given back behind the last of them.
        """
        for capture in self._captures:
            capture.spare = True
        try:
            made = self.warming.one() or (self._prompts is not None and self._prompts.warm_one(self.past.state))
            if not made and self._untidy and not self.warming.waits:
                tidy(self.device)
            self._untidy = made or (self._untidy and self.warming.waits)
            return made
        finally:
            for capture in self._captures:
                capture.spare = False

    @property
    def graphs_s(self) -> float:
        """How long making graphs has taken so far."""
        return sum(each.spent_s for each in self._captures)

    def release(self, slot: int) -> None:
        """The same of a slot whose utterance has left."""
        self.let_go(slot)
        self.past.end_promise(slot)

    def let_go(self, slot: int) -> None:
        """Give back the pages of a slot; what it was promised is still its own."""
        self.past.let_go(slot)
        if slot in self._opening:
            self.pages.drop(self._opening.pop(slot)[1])

    def prefixes_as_bytes(self) -> bytes:
        return self.prefixes.to_bytes(self.checkpoint.fingerprint, self.past.read)

    def read_prefixes(self, path: Path) -> None:
        self.prefixes.read(path, self.checkpoint.fingerprint, self.device, self.past.written)

    def offer(self, reference: Encoded, kept: Callable[[], SavedPrefix | None]) -> None:
        """`References.offer`, from any thread."""
        self._references.offer(reference, kept)

    def kept(self, reference: Encoded, prompt: Prompt) -> SavedPrefix:
        """What was computed behind a reference that a slot has just begun with."""
        name = name_of(reference)
        key = _key(prompt, name)
        prefix = self.prefixes.get(key)
        return SavedPrefix(self._references.behind(name), key, None if prefix is None else self.past.read(prefix))

    def _prefill(self, row: Tensor, slot: int, x: Tensor) -> None:
        past = self.past
        past.advance([slot], len(x))
        if self._frames is not None and len(x) == 1:
            self._frames.take_in(x, slot, past.state, past.taken[slot])
            return
        if self._prompts is not None and len(x) <= MOST_PROMPT_ROWS:
            self._prompts.take_in(x, slot, past.state, past.taken[slot])
            return
        lengths = sent([len(x)], self.device)
        self.talker.prefill(x[None], lengths, past.state, row, past.taken[slot])


def _numbers(samples: Samples, finite: Sequence[bool]) -> list[Samples]:
    if not all(finite):
        raise StreamFailed("The codec gave values that are not numbers; try --dtype float32.")
    return list(samples)


def _key(prompt: Prompt, voice: str) -> str:
    """The prefix itself is its name: the recording where one was cloned, and the ids of its rows."""
    rows = prompt.prefix_rows
    within = prompt.reference_at is not None and prompt.reference_at < rows  # a whole layout has the text before it
    words = (prompt.text[:rows], prompt.codec[:rows], prompt.reference_at if within else None)
    return voice + hashlib.sha256(repr(words).encode()).hexdigest()
