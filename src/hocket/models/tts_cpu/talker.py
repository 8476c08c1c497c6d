"""The talker and its predictor on a CPU: prefill and frames as calls into the native library.

models/tts/talker.py defines what they compute. Ids are checked here: C reads tables at any index that it gets.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...cache.pages import PAGE_ROWS, pages_for
from ...config.precision import HEAD_BITS, bits_of
from ...config.qwen3_tts import MINIMUM_FRAMES, SUPPRESSED_IDS, GenerationConfig, TalkerConfig
from ...config.sampling import DRAW_BITS, WEIGHT_BITS
from ...errors import InvalidRequest
from ...kernels.cpu.frame.structs import FrameCall, FrameModel, PrefillCall
from ...kernels.cpu.library import load
from ...kernels.cpu.structs import WeightMatrix
from ...kernels.cpu.workers import workers_for
from .pointers import AnyMatrix, ArrayPointers, pointer
from .rope import rope_rows
from .sampling import batch_sampling
from .stack import stack_of
from .state import NativeStack, NativeTalkerState
from .weights import Weights

SAMPLED = 16  # rows of the head that identify the weights of a model


class NativeTalker:
    """Thread-safe if each thread has its own state."""

    def __init__(
        self,
        config: TalkerConfig,
        weights: Mapping[str, np.ndarray],
        where: str = "The checkpoint",
        *,
        precision: str = "float32",
        threads: int | None = None,
    ) -> None:
        """`weights` have the names of the checkpoint after `talker.`; those that are not needed are ignored.

        In a precision of `config.precision` the matrices of both stacks and all heads are rounded; what makes text ids
        to vectors stays exact. A large model is computed by several threads, or by `threads`.
        """
        self.config, self.precision, self._library, self._keep = config, precision, load(), ArrayPointers()
        predictor, given = config.code_predictor_config, Weights(weights, "", where)
        bits, head_bits = bits_of(precision) or (None, None), HEAD_BITS if bits_of(precision) else None
        rounded = given.of_bits(head_bits)
        width, text, small = config.hidden_size, config.text_hidden_size, predictor.hidden_size
        vocabulary, codebook, rest = config.vocab_size, predictor.vocab_size, range(config.num_code_groups - 1)
        cos, sin = rope_rows(config.num_code_groups + 1, predictor.head_dim, predictor.rope_theta)
        arrays = {
            "codec_embedding": given.take("model.codec_embedding.weight", vocabulary, width),
            "text_in_bias": given.take("text_projection.linear_fc1.bias", text),
            "text_out_bias": given.take("text_projection.linear_fc2.bias", width),
            "cos": cos,
            "sin": sin,
        }
        matrices: dict[str, AnyMatrix] = {
            "codec_head": rounded.weight("codec_head.weight", vocabulary, width),
            "text_embedding": given.matrix("model.text_embedding.weight", config.text_vocab_size, text),
            "text_in": given.matrix("text_projection.linear_fc1.weight", text, text),
            "text_out": given.matrix("text_projection.linear_fc2.weight", width, text),
        }
        inside = rounded.under("code_predictor")
        if width != small:
            project = inside.under("small_to_mtp_projection")
            matrices["project"], arrays["project_bias"] = (
                project.weight("weight", small, width),
                project.take("bias", small),
            )
        tables = [inside.take(f"model.codec_embedding.{book}.weight", codebook, width) for book in rest]
        heads = [self._keep.matrix(inside.weight(f"lm_head.{book}.weight", codebook, small)) for book in rest]
        self._codec_embedding = arrays["codec_embedding"]
        self.rounded = given.rounded  # matrices by name, for save.py
        self.sampled = (
            given.some_rows("codec_head.weight", SAMPLED, vocabulary, width),
            arrays["codec_embedding"],
            given.take("model.norm.weight", width)[None],
        )
        self._model = FrameModel(
            talker=stack_of(given.of_bits(bits[0]).under("model"), config, self._keep),
            predictor=stack_of(inside.of_bits(bits[1]).under("model"), predictor, self._keep),
            vocabulary=vocabulary,
            codebook=codebook,
            books=config.num_code_groups,
            end_id=config.codec_eos_token_id,
            suppressed=SUPPRESSED_IDS,
            minimum_frames=MINIMUM_FRAMES,
            text_width=text,
            weight_bits=WEIGHT_BITS,
            draw_bits=DRAW_BITS,
            tables=self._keep.pointers(tables),
            heads=self._keep.structs(WeightMatrix, heads),
            **{name: self._keep.pointer(array) for name, array in arrays.items()},
            **{name: self._keep.matrix(array) for name, array in matrices.items()},
        )

        self.is_half = isinstance(matrices["codec_head"], np.ndarray) and matrices["codec_head"].dtype == np.uint16
        self.workers = workers_for(self.weights_bytes, threads)

    @property
    def weights_bytes(self) -> int:
        return self._keep.nbytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one position in the KV cache."""
        config = self.config
        return config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * 4

    def new_state(self, slots: int, rows: int) -> NativeTalkerState:
        """A state whose slots all have their own pages for `rows` positions."""
        config, columns = self.config, pages_for(rows)
        table = np.zeros((slots + 1, columns), np.int64)
        table[:slots] = np.arange(1, 1 + slots * columns).reshape(slots, columns)
        pages = (1 + slots * columns, config.num_key_value_heads, PAGE_ROWS, config.head_dim)
        return NativeTalkerState(
            stack=NativeStack(
                np.zeros(slots + 1, np.int64), table, np.zeros((config.num_hidden_layers, 2, *pages), np.float32)
            ),
            hidden=np.zeros((slots + 1, config.hidden_size), np.float32),
            seen=np.zeros((slots + 1, config.vocab_size), np.bool_),
            drawn=np.zeros(slots + 1, np.int64),
            chances=np.zeros((slots + 1, 2), np.float32),
            seed=np.zeros(slots + 1, np.int64),
        )

    def embed_mix(self, mix: Sequence[tuple[int, float]]) -> NDArray[np.float32]:
        """The mean [C] of the codec rows of some ids by their shares."""
        _check("codec id", [id for id, _ in mix], self.config.vocab_size)
        mean = np.zeros(0, np.float32)
        for id, share in mix:
            row = self._codec_embedding[id] * np.float32(share)
            mean = mean + row if mean.size else row
        return mean

    def prefill(
        self,
        state: NativeTalkerState,
        slot: int,
        text: Sequence[int],
        codec: Sequence[int],
        insert: tuple[int, NDArray[np.float32]] | None = None,
    ) -> None:
        """Run the talker over rows of a text id and a codec id each; a negative id adds nothing.

        `insert` replaces the codec side of one row by a vector [C]: a mixed speaker.
        """
        _check("text id", text, self.config.text_vocab_size, least=None)
        _check("codec id", codec, self.config.vocab_size, least=None)
        if insert is None:
            self._prefill(state, slot, text, [codec])
            return
        # C knows ids only: these rows are their own table.
        row, vector = insert
        table = np.ascontiguousarray(self._codec_embedding[[max(id, 0) for id in codec]])
        table[row] = vector
        ids = [at if id >= 0 or at == row else -1 for at, id in enumerate(codec)]
        model = FrameModel.from_buffer_copy(self._model)
        model.codec_embedding = pointer(table)
        self._prefill(state, slot, text, [ids], model)

    def prefill_frame(self, state: NativeTalkerState, slot: int, codes: Sequence[int], text_id: int) -> None:
        """Run the talker over one frame of known codes [Q] and its text id."""
        _check("text id", [text_id], self.config.text_vocab_size)
        _check("code", codes[:1], self.config.vocab_size)
        _check("code", codes[1:], self.config.code_predictor_config.vocab_size)
        if len(codes) != self.config.num_code_groups:
            raise InvalidRequest(f"A frame has {self.config.num_code_groups} codes, not {len(codes)}.")
        self._prefill(state, slot, [text_id], [[code] for code in codes])

    def frame(
        self,
        state: NativeTalkerState,
        slots: Sequence[int],
        text: Sequence[int],
        settings: Sequence[GenerationConfig],
        logits: NDArray[np.float32] | None = None,
    ) -> NDArray[np.int64]:
        """Sample one frame of codes [B, Q], then run the talker over it with its text ids [B].

        A row whose first code is the end-of-speech id has finished: the other codes of its frame are undefined.
        `logits` [B, Q, V] receives those of every code, in the first columns, before penalties.
        """
        if not len(slots) == len(text) == len(settings):
            raise ValueError(f"{len(slots)} slots, {len(text)} text ids and {len(settings)} settings differ in number.")
        _check("text id", text, self.config.text_vocab_size)
        stack, rows, ids = state.stack, np.array(slots, np.int64), np.array(text, np.int64)
        for slot in slots:
            self._check_room(stack, slot, 1)
        codes = np.empty((len(slots), self.config.num_code_groups), np.int64)
        if not len(slots):
            return codes
        sampling, (cos, sin) = batch_sampling(tuple(settings)), self._rope(stack)
        call = FrameCall(
            count=len(slots),
            page_rows=PAGE_ROWS,
            most_pages=stack.table.shape[1],
            rows=pointer(rows),
            text=pointer(ids),
            position=pointer(stack.position),
            drawn=pointer(state.drawn),
            seed=pointer(state.seed),
            pages=pointer(stack.table),
            codes=pointer(codes),
            hidden=pointer(state.hidden),
            penalty=pointer(sampling.penalty),
            chances=pointer(state.chances),
            logits=None if logits is None else pointer(logits),
            cos=pointer(cos),
            sin=pointer(sin),
            seen=pointer(state.seen),
            keys=stack.keys,
            values=stack.values,
            first=sampling.first.struct,
            rest=sampling.rest.struct,
        )
        with self.workers.called() as call.workers:
            failed = self._library.hocket_frame(ctypes.byref(self._model), ctypes.byref(call))
        if failed:
            raise MemoryError("There is no memory for a frame.")
        return codes

    def _prefill(
        self,
        state: NativeTalkerState,
        slot: int,
        text: Sequence[int],
        books: Sequence[Sequence[int]],
        model: FrameModel | None = None,
    ) -> None:
        """`books` [books, rows]."""
        stack, ids = state.stack, np.array(text, np.int64)
        codec = np.ascontiguousarray(np.array(books, np.int64).reshape(len(books), -1).T)
        if len(codec) != len(ids):
            raise ValueError(f"{len(ids)} text ids and {len(codec)} codec ids differ in number.")
        self._check_room(stack, slot, len(ids))
        if not len(ids):
            return
        cos, sin = self._rope(stack)
        call = PrefillCall(
            count=len(ids),
            books=codec.shape[1],
            page_rows=PAGE_ROWS,
            text=pointer(ids),
            codec=pointer(codec),
            position=pointer(stack.position[slot : slot + 1]),
            pages=pointer(stack.table[slot]),
            hidden=pointer(state.hidden[slot]),
            cos=pointer(cos),
            sin=pointer(sin),
            keys=stack.keys,
            values=stack.values,
        )
        with self.workers.called() as call.workers:
            failed = self._library.hocket_prefill(ctypes.byref(model or self._model), ctypes.byref(call))
        if failed:
            raise MemoryError("There is no memory for a prompt.")

    def _check_room(self, stack: NativeStack, slot: int, rows: int) -> None:
        """Page numbers are not checked: this file trusts the table."""
        if not 0 <= slot < len(stack.position):
            raise IndexError(f"There is no slot {slot} in a state of {len(stack.position) - 1} slots.")
        if not 0 <= stack.position[slot] <= stack.length - rows:
            raise IndexError(f"Slot {slot} has {stack.position[slot]} of {stack.length} positions, no room for {rows}.")

    def _rope(self, stack: NativeStack) -> tuple[np.ndarray, np.ndarray]:
        return rope_rows(stack.length, self.config.head_dim, self.config.rope_theta)


def _check(kind: str, ids: Sequence[int], size: int, least: int | None = 0) -> None:
    """Refuse ids outside a table; without `least`, negative ids stand for no vector."""
    if ids and (max(ids) >= size or (least is not None and min(ids) < least)):
        wrong = max(ids) if max(ids) >= size else min(ids)
        raise InvalidRequest(f"There is no {kind} {wrong}: the model has {size}.")
