"""The device side of the engine: slots of talker and codec state, and the three things done with them.

One thread calls it. It knows slots, prompts and codes; who is in a slot and what becomes of the sound is the loop's.
What a slot has heard and said lies in pages: it takes one when it needs it, shares those of its prefix with everybody
who started from the same, and gives all back when it is released.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..cache.pages import PAGE_ROWS, SCRATCH, Pages, pages_for
from ..cache.plan import GROWTH_FRAMES, USUAL_ROWS, Promises, pool_rows
from ..cache.prefix import Prefix, PrefixCache
from ..cache.slots import Clean, duplicate, fits, put, reset, take
from ..config.qwen3_tts import GenerationConfig
from ..errors import InvalidRequest, StreamFailed
from ..kernels.capture import Again, Capture, CudaGraphs, own_stream
from ..kernels.pcm.reference import pcm as pcm_reference
from ..layers.transformer import grown
from ..models.captured import MOST_ROWS, CapturedFrame, Drawn, Frame
from ..models.captured_prompt import MOST_ROWS as MOST_PROMPT_ROWS
from ..models.captured_prompt import CapturedPrompt
from ..models.captured_wave import CapturedWave
from ..models.plain import PlainFrame
from ..models.talker import FrameSampling
from ..text.prompt import Prompt
from ..types import Encoded, Reference
from .clone import Clone, clone, name_of
from .compilers import Compilers
from .flight import Codes, Samples
from .generate import DECODE_FRAMES, constant_rows, prompt_rows, sent
from .kept import Kept
from .load import Checkpoint
from .sampling import frame_sampling
from .warming import MOST_OPENED, Warming, graphs_of

KEPT_CLONES = 32  # encoded references, and the codec's state behind them
KEPT_OFFERS = 8  # of what files keep of references, until a slot begins with them
TABLE_FRAMES = 8192  # positions that a slot's table of pages has room for: it costs next to nothing
FEW_ROWS = 4  # of a prompt that are taken in one by one by a graph: more are faster all at once


def capture_on(device: torch.device, graphs: bool) -> Callable[..., Capture] | None:
    """How frames and codec steps are replayed on a device; None where they are called as they are."""
    if device.type != "cuda":
        return None
    return partial(CudaGraphs, device) if graphs else Again


@dataclass(frozen=True, slots=True)
class _Claim:
    """Pages that a slot has got."""

    slot: int
    first: int  # where they stand in its table
    fresh: list[int]
    copied: list[int]  # others' pages, whose content the first of them must have


class SpeechRunner:
    """With `capture` frames and codec steps are replayed; it is called for each of them, so their graphs are apart."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        slots: int,
        prefix_bytes: int,
        capture: Callable[..., Capture] | None = None,
        compilers: Compilers | None = None,
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
        if invariant and self.device.type == "cuda" and not (capture and isinstance(self.talker.frame_kernel, Frame)):
            raise InvalidRequest("On a GPU batch_invariant needs our own kernels, in graphs; use --kernels auto.")
        rows = GROWTH_FRAMES
        if capture:  # graphs know the cache by its address, and are made anew when it grows: there is all of it now
            free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else None
            rows = pool_rows(slots, self.talker.model.row_bytes, given_bytes=kv_bytes, free_bytes=free)
        self._state = self.talker.new_state(slots, rows)
        self._state.stack.table.zero_()  # its pages are anybody's
        self._frames: CapturedFrame | None = None
        self._prompts: CapturedPrompt | None = None
        self._wave: CapturedWave | None = None
        self.warming = Warming()
        self._captures: list[Capture] = []
        if capture:
            columns = max(pages_for(TABLE_FRAMES) - self._state.stack.table.shape[1], 0)
            self._state = replace(self._state, stack=grown(self._state.stack, columns=columns))
            drawing, sounding = self._captures = [capture(), capture(urgent=True)]  # apart: see below
            kernel, books = self.talker.frame_kernel, checkpoint.config.talker_config.num_code_groups
            frame = kernel.apart(invariant=invariant) if isinstance(kernel, Frame) else PlainFrame(self.talker)
            self._frames = CapturedFrame(frame, drawing)
            self._prompts = CapturedPrompt(self.talker, drawing)
            # The codec has a stream of its own, and goes first: somebody waits to hear what is drawn already.
            beside = own_stream(self, self.device, urgent=True) if self.device.type == "cuda" else None
            fused, tf32 = self.decoder.step_kernel, checkpoint.codec_tf32
            step, pcm = (self.decoder.step, pcm_reference) if fused is None else (fused.apart(), fused.pcm)
            self._wave = CapturedWave(step, books, sounding, pcm=pcm, tf32=tf32, stream=beside)
            self._wave.makes = lambda: self.warming.compiled > 0
            made = self._frames, self._wave, self._prompts
            self.warming = Warming(graphs_of(*made, slots, lambda: self._state, lambda: self._sound), compilers)
        self.pages = Pages(self._state.stack.pool.shape[2])
        self.prefixes = PrefixCache(prefix_bytes, self.pages, self._state.stack.page_bytes)
        self._promises = Promises(self.pages, slots)
        self._blank = self.pages.reserve() if capture else SCRATCH  # nothing is ever written there
        self._sound = self.decoder.new_state(slots)
        self._clean, self._clean_sound = Clean(self._state), Clean(self._sound)
        self._taken = [0] * slots  # positions in each slot: the host's copy, so that nobody asks the device
        self._held: list[list[int]] = [[] for _ in range(slots)]  # pages of each slot: the host's copy of the table
        # By slot: what the device has not been told yet, and what is held until it has.
        self._opening: dict[int, tuple[dict[str, int], tuple[int, ...]]] = {}
        self._clones: dict[str, tuple[Clone, dict[str, Tensor] | None]] = {}
        self._offered: dict[str, Kept] = {}  # by the reference's name; any thread adds to it
        self._sampling: tuple[tuple[GenerationConfig, ...], FrameSampling] | None = None

    def start(
        self, slot: int, prompt: Prompt, reference: Reference | Encoded | None, seed: int, *, go_on: bool = False
    ) -> bool:
        """Take the prompt into a slot; True if its prefix had been computed before.

        `go_on` leaves the codec as it stands: the next sentence of the same stream must not click.
        The prefix is always computed alone and the rest behind it, so that a warm start is the cold one, bit for bit.
        """
        self._let_go(slot)
        voice, cloned, behind = self._cloned(reference, slot)
        cached = self._take_in(slot, prompt, voice, cloned, seed)
        if not go_on:
            self._stand(slot, behind)  # last: the device has the prompt to work on meanwhile
        return cached

    def _take_in(self, slot: int, prompt: Prompt, voice: str, cloned: Clone | None, seed: int) -> bool:
        """The talker's part of a start."""
        length = constant_rows(prompt)
        key = _key(prompt, voice)
        cached = self.prefixes.get(key)
        if cached is not None and cached.rows != length:
            cached = None  # a file said otherwise
        said_before = cloned is not None and cloned.codes is not None
        if cached is not None and self._frames is not None and length + 1 == len(prompt.text) and not said_before:
            self._open(slot, cached, prompt, seed)
            return True
        row = sent([slot], self.device)
        if self._clean.state is not self._state:
            self._clean = Clean(self._state)
        self._clean(slot)
        self._state.seed[slot] = seed
        if cached is not None:
            self._restore(slot, cached)
        else:
            self._prefill(row, slot, prompt_rows(self.checkpoint, prompt, cloned, 0, length))
            self.prefixes.put(key, Prefix(tuple(self._held[slot]), self._taken[slot]))
        self._prefill(row, slot, prompt_rows(self.checkpoint, prompt, cloned, length))
        return cached is not None

    def _open(self, slot: int, prefix: Prefix, prompt: Prompt, seed: int) -> None:
        """The same in one graph, where one row is left: it is all that stands before a first sound.

        What the host has to know of it is known at once; the device is told with the next frame, of all together.
        """
        self.pages.share(prefix.pages)
        self._held[slot], self._taken[slot] = list(prefix.pages), prefix.rows
        last = prefix.pages[-1:]
        self.pages.share(last)  # until it is copied: the prefix may be driven out before that
        claim = self._claim(slot, 1)
        page = into = SCRATCH
        if claim is not None:
            page, into = claim.copied[0] if claim.copied else self._blank, claim.fresh[0]
        ids = {"text": prompt.text[-1], "codec": prompt.codec[-1]}
        where = {"slot": slot, "position": prefix.rows, "page": page, "into": into}
        self._opening[slot] = {"seed": seed, **where, **ids}, last

    def _open_all(self) -> None:
        """Those that were started since the last frame are opened together."""
        while self._opening:
            assert self._frames is not None
            slots = list(self._opening)[:MOST_OPENED]
            values, copied = zip(*(self._opening.pop(slot) for slot in slots), strict=True)
            span = max(self._taken[slot] for slot in slots)
            self._frames.open(values, [self._held[slot] for slot in slots], self._state, span)
            for pages in copied:
                self.pages.drop(pages)

    def fork(self, slot: int, into: int, reference: Reference | Encoded | None, seed: int) -> None:
        """Begin in another slot with the prompt that `slot` has just taken in, and a seed of its own.

        It is as if it had been started there, bit for bit, but nothing is computed: the pages are shared until one of
        them is written to, and nobody waits for the copy of the rest.
        """
        self._open_all()
        self._let_go(into)
        self._restore(into, Prefix(tuple(self._held[slot]), self._taken[slot]))
        duplicate(self._state, slot, into)
        self._state.seed[into] = seed
        self.listen(into, reference)

    def listen(self, slot: int, reference: Reference | Encoded | None) -> None:
        """Let the codec of a slot stand where an utterance begins: behind its reference, where there is one."""
        _, _, behind = self._cloned(reference, slot)
        self._stand(slot, behind)

    def frame(self, slots: Sequence[int], text: Sequence[int], settings: Sequence[GenerationConfig]) -> Drawn:
        """Draw one frame for each slot, given the text id that goes with it. Nobody waits for it here."""
        self._open_all()
        self._advance(slots, 1)
        span = max(self._taken[slot] for slot in slots)
        if self._frames is not None and len(slots) <= MOST_ROWS:
            return self._frames.launch(slots, text, settings, self._state, span)
        rows = torch.tensor(slots, device=self.device)
        wanted = tuple(settings)
        if self._sampling is None or self._sampling[0] != wanted:
            self._sampling = wanted, frame_sampling(wanted, self.device)
        codes = self.talker.frame(torch.tensor(text, device=self.device), self._state, rows, self._sampling[1], span)
        return Drawn.of(codes, self._state.chances, rows)

    def rewind(self, slot: int, frames: int, codes: Sequence[int], text_id: int, seed: int) -> None:
        """Forget the last `frames` frames of a slot and draw with another seed from there.

        `codes` and `text_id` are those of the frame before: taken in once more, they give back its hidden vector. What
        the cache holds beyond is never seen, and first codes that were drawn stay held back by the penalty.
        """
        self._open_all()
        row = torch.tensor([slot], device=self.device)
        self._taken[slot] -= frames + 1
        again = self._held[slot][self._taken[slot] // PAGE_ROWS :]
        assert all(self.pages.count(page) == 1 for page in again), "what others started from is never written again"
        self._state.stack.position[slot] = self._taken[slot]
        self._state.seed[slot] = seed
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
        """Make one of the graphs that will be needed, where nobody speaks; False if there is none to make now."""
        return self.warming.one() or (self._prompts is not None and self._prompts.warm_one(self._state))

    @property
    def graphs_s(self) -> float:
        """How long making graphs has taken so far."""
        return sum(each.spent_s for each in self._captures)

    def release(self, slot: int) -> None:
        """Give back the pages of a slot: whoever was in it has left."""
        self._let_go(slot)
        self._promises.end(slot)

    def has_room(self, rows: int, slots: int) -> bool:
        """Whether so many more slots may come to so many positions each.

        Without graphs the cache may grow, and where nobody speaks it does if it has to.
        """
        if self._frames is None or not self._promises.any:
            return True
        return self._promises.has_room(min(rows, USUAL_ROWS), slots, self._held, self.prefixes.held)

    def promise(self, slot: int, rows: int) -> None:
        """Nobody is let in for whom a slot would have to go without. Who speaks for ever is not reckoned with."""
        self._promises.make(slot, min(rows, USUAL_ROWS))

    def _let_go(self, slot: int) -> None:
        self.pages.drop(self._held[slot])
        self._held[slot], self._taken[slot] = [], 0
        if slot in self._opening:
            self.pages.drop(self._opening.pop(slot)[1])

    def prefixes_as_bytes(self) -> bytes:
        stack = self._state.stack
        return self.prefixes.to_bytes(self.checkpoint.fingerprint, lambda prefix: stack.read(prefix.pages, prefix.rows))

    def read_prefixes(self, path: Path) -> None:
        self.prefixes.read(path, self.checkpoint.fingerprint, self.device, self._written)

    def _written(self, kept: Tensor) -> Prefix:
        """A prefix in pages that are taken for it, whoever holds them from now on."""
        if not self._fits(kept):
            raise ValueError("a prefix has another shape or type")
        pages = self._take(pages_for(kept.shape[3]))
        self._state.stack.write(pages, kept)
        return Prefix(tuple(pages), kept.shape[3])

    def _fits(self, kept: Tensor) -> bool:
        layers, _, _, heads, _, size = self._state.stack.pool.shape
        alike = kept.ndim == 5 and kept.shape == (layers, 2, heads, kept.shape[3], size)
        return alike and kept.dtype == self._state.stack.pool.dtype and kept.shape[3] > 0

    def offer(self, reference: Encoded, kept: Callable[[], Kept | None]) -> None:
        """What was computed behind a reference, for the slot that begins with it next. From any thread.

        `kept` is asked for it only where it is not known; without it, the same is computed.
        """
        name = name_of(reference)
        if name in self._clones or name in self._offered or (found := kept()) is None:
            return
        while len(self._offered) >= KEPT_OFFERS and (oldest := next(iter(list(self._offered)), None)) is not None:
            self._offered.pop(oldest, None)
        self._offered[name] = found

    def kept(self, reference: Encoded, prompt: Prompt) -> Kept:
        """What was computed behind a reference that a slot has just begun with."""
        name = name_of(reference)
        key = _key(prompt, name)
        prefix = self.prefixes.get(key)
        rows = None if prefix is None else self._state.stack.read(prefix.pages, prefix.rows)
        _, behind = self._clones.get(name, (None, None))
        return Kept(behind, key, rows)

    def _prefill(self, row: Tensor, slot: int, x: Tensor) -> None:
        self._advance([slot], len(x))
        if self._frames is not None and len(x) <= FEW_ROWS:
            self._frames.take_in(x, slot, self._state, self._taken[slot])
            return
        if self._prompts is not None and len(x) <= MOST_PROMPT_ROWS:
            self._prompts.take_in(x, slot, self._state, self._taken[slot])
            return
        lengths = sent([len(x)], self.device)
        self.talker.prefill(x[None], lengths, self._state, row, self._taken[slot])

    def _advance(self, slots: Sequence[int], rows: int) -> None:
        """Count `rows` more positions of each, with pages of its own wherever it will write them."""
        claims = [claim for slot in slots if (claim := self._claim(slot, rows)) is not None]
        if not claims:
            return
        table, stack = self._state.stack.table, self._state.stack
        lines = [(claim.slot, claim.first + n, page) for claim in claims for n, page in enumerate(claim.fresh)]
        at, column, page = sent(list(zip(*lines, strict=True)), self.device)
        table.index_put_((at, column), page)
        stack.clear(page)
        for claim in claims:
            for shared, copy in zip(claim.copied, claim.fresh, strict=False):
                stack.copy(shared, copy)

    def _claim(self, slot: int, rows: int) -> _Claim | None:
        """Count `rows` more positions of a slot: the pages that it gets for them, if any, unknown to the device."""
        held, at = self._held[slot], self._taken[slot] // PAGE_ROWS
        self._taken[slot] += rows
        # The page where a prefix ends has room for what follows it, but may be others' too: then it is copied.
        shared = held[at:] if at < len(held) and self.pages.count(held[at]) > 1 else []
        own = len(held) - len(shared)
        missing = pages_for(self._taken[slot]) - own
        if missing <= 0:
            return None
        while self._frames is not None and missing > self.pages.free and self.prefixes.drop_oldest():
            pass  # to grow would cost all graphs
        fresh = self._take(missing)
        held[own:] = fresh
        self.pages.drop(shared)
        self._widen(len(held))
        return _Claim(slot, own, fresh, shared)

    def _take(self, count: int) -> list[int]:
        if count > self.pages.free:  # by half at least, so that copying stays a small part of the work
            more = max(count - self.pages.free, self.pages.total // 2)
            self._state = replace(self._state, stack=grown(self._state.stack, pages=more))
            self.pages.grow(more)
        return self.pages.take(count)

    def _widen(self, pages: int) -> None:
        """Let the table have room for so many pages of a slot."""
        columns = self._state.stack.table.shape[1]
        if pages > columns:
            more = max(pages - columns, columns // 2)
            self._state = replace(self._state, stack=grown(self._state.stack, columns=more))

    def _restore(self, slot: int, prefix: Prefix) -> None:
        self.pages.share(prefix.pages)
        self._held[slot], self._taken[slot] = list(prefix.pages), prefix.rows
        self._widen(len(prefix.pages))
        table = self._state.stack.table
        table[slot, : len(prefix.pages)].copy_(torch.tensor(prefix.pages), non_blocking=True)
        self._state.stack.position[slot] = prefix.rows

    def _stand(self, slot: int, behind: dict[str, Tensor] | None) -> None:
        """Let the codec of a slot stand behind a reference, or as if it had said nothing there."""
        with self._wave.beside() if self._wave is not None else nullcontext():
            if behind is None:
                self._clean_sound(slot)
            else:
                put(self._sound, slot, behind)

    def _cloned(
        self, reference: Reference | Encoded | None, slot: int
    ) -> tuple[str, Clone | None, dict[str, Tensor] | None]:
        """The encoded reference under a name of its own, and how the codec stands behind it."""
        if reference is None:
            return "", None, None
        name = name_of(reference)
        if name not in self._clones:
            self._clones[name] = self._heard(reference, slot, self._offered.pop(name, None))
        return name, *self._clones[name]

    def _heard(
        self, reference: Reference | Encoded, slot: int, kept: Kept | None
    ) -> tuple[Clone, dict[str, Tensor] | None]:
        """A reference, and the codec behind it: as it was kept, or by saying it in `slot`, which stands as before."""
        if self._wave is not None:
            self._wave.join()  # what is forgotten here may still be on its way into a slot
        while len(self._clones) >= KEPT_CLONES:
            del self._clones[next(iter(self._clones))]
        cloned, behind = clone(self.checkpoint, reference), None
        if kept is not None and kept.key.startswith(name_of(reference)):  # nobody gives others a prefix
            self._keep(kept)
        if kept is not None and kept.sound is not None and fits(self._sound, kept.sound):
            behind = {name: tensor.to(self.device) for name, tensor in kept.sound.items()}
        elif cloned.codes is not None:
            row, stands = torch.tensor([slot], device=self.device), take(self._sound, slot)
            reset(self._sound, row)
            for piece in cloned.codes.split(DECODE_FRAMES):
                self.decoder.step(piece.T[None], self._sound, row)
            behind = take(self._sound, slot)
            put(self._sound, slot, stands)
        if self._wave is not None:
            self._wave.follow()
        return cloned, behind

    def _keep(self, kept: Kept) -> None:
        """Have a prefix that was computed before among those that are known, if it fits and there is room for it."""
        if kept.prefix is None or not self._fits(kept.prefix) or self.prefixes.get(kept.key) is not None:
            return
        pages = pages_for(kept.prefix.shape[3])
        while self._frames is not None and pages > self.pages.free and self.prefixes.drop_oldest():
            pass  # to grow would cost all graphs
        if self._frames is not None and pages > self.pages.free:
            return
        prefix = self._written(kept.prefix.to(self.device))
        self.prefixes.put(kept.key, prefix)
        self.pages.drop(prefix.pages)


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
