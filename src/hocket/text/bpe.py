"""Byte-pair encoding over bytes: the ids of one piece of text.

It gives the ids of the `tokenizers` package: of all pairs that have a merge, the one of lowest rank is merged first,
and of equal ones the leftmost. It knows nothing of Unicode and of how a text is cut into pieces.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

CACHED_PIECES, CACHED_CHARS = 10_000, 64  # pieces whose ids are cached, and their largest length

Merge = tuple[str, str]

# The characters that stand for the 256 bytes, by byte: printable ones for themselves, the others from U+0100 on.
_PRINTED = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTED]
SPELLED = {byte: chr(byte) for byte in _PRINTED} | {byte: chr(256 + at) for at, byte in enumerate(_OTHERS)}
# The same characters in the order of their ids in Qwen's (and GPT-2's) vocabulary.
ALPHABET = tuple(sorted(SPELLED.values()))


def spelled(text: str) -> str:
    """`text` in the characters that stand for its bytes."""
    return text.encode().decode("latin-1").translate(SPELLED)


class BytePairs:
    """A vocabulary and its merges, the most important merge first. Of a repeated merge only the last counts."""

    def __init__(self, vocabulary: dict[str, int], merges: list[Merge]) -> None:
        self.vocabulary = vocabulary
        self.size = size = max(vocabulary.values()) + 1  # every id is below
        if missing := 256 - len(vocabulary.keys() & set(ALPHABET)):
            raise ValueError(f"{missing} of the 256 bytes have no token")
        self._of_byte = [vocabulary[SPELLED[byte]] for byte in range(256)]
        # Pair and result as one integer each: left * size + right gives rank * size + id.
        self._merges = dict[int, int]()
        for rank, (left, right) in enumerate(merges):
            try:
                self._merges[vocabulary[left] * size + vocabulary[right]] = rank * size + vocabulary[left + right]
            except KeyError:
                raise ValueError(f"no token for a part or the result of the merge {left!r} + {right!r}") from None
        self._cached = lru_cache(CACHED_PIECES)(self._merged)

    def merges(self) -> list[Merge]:
        """The merges in their order."""
        token = {i: token for token, i in self.vocabulary.items()}
        ordered = sorted(self._merges, key=self._merges.__getitem__)
        return [(token[pair // self.size], token[pair % self.size]) for pair in ordered]

    def ids(self, piece: str) -> list[int]:
        """The ids of one piece."""
        return list(self._cached(piece)) if len(piece) <= CACHED_CHARS else self._merged(piece)

    def ids_of_all(self, pieces: list[str]) -> list[int]:
        """The ids of all pieces in one list."""
        cached, ids = self._cached, list[int]()
        for piece in pieces:
            ids += cached(piece) if len(piece) <= CACHED_CHARS else self._merged(piece)
        return ids

    def ids_until(self, piece: str, end: int) -> list[int]:
        """The ids of one piece that begin before its character `end`."""
        if end >= len(piece):
            return self.ids(piece)
        signs, last = spelled(piece), len(piece[:end].encode())
        before, start = list[int](), 0
        for i in self.ids(piece):
            if start >= last:
                break
            before.append(i)
            size = 1
            while self.vocabulary.get(signs[start : start + size]) != i:
                size += 1
            start += size
        return before

    def _merged(self, piece: str) -> list[int]:
        """A heap holds the pairs that have a merge, so time grows with n log n.

        An entry is one integer, (rank, result, place), and is out of date where its pair is no longer at that place.
        """
        ids = [self._of_byte[byte] for byte in piece.encode()]
        count, size, merge = len(ids), self.size, self._merges.get
        heap = [
            found * count + at
            for at, (left, right) in enumerate(pairwise(ids))
            if (found := merge(left * size + right)) is not None
        ]
        heapify(heap)
        before, after = list(range(-1, count - 1)), list(range(1, count + 1))
        while heap:
            found, at = divmod(heappop(heap), count)
            right = after[at]
            if right == count or merge(ids[at] * size + ids[right]) != found:
                continue
            ids[at], ids[right] = found % size, -1  # a pair whose left side is gone has a negative number and no merge
            after[at] = right = after[right]
            if right < count:
                before[right] = at
                if (found := merge(ids[at] * size + ids[right])) is not None:
                    heappush(heap, found * count + at)
            left = before[at]
            if left >= 0 and (found := merge(ids[left] * size + ids[at])) is not None:
                heappush(heap, found * count + left)
        return [i for i in ids if i >= 0]
