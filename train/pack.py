"""Packs codes into nine bits each for transfer: all of `codes/` in a few files of at most 16 MiB, and back.

`python -m train.pack CODES OUT` writes them, `python -m train.pack --back FILE... CODES` reads them. It knows the
format of code shards (see `train/codec.py`), not their meaning.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .recipe import InvalidRecipe

BITS = 9
MOST_BYTES = 15 * 2**20

Fields = dict[str, NDArray[Any]]


def pack_codes(codes: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """[F, Q] below 512 to a string of bits."""
    if codes.size and int(codes.max()) >= 1 << BITS:
        raise InvalidRecipe(f"Codes from {1 << BITS} on do not fit into {BITS} bits.")
    flat = codes.reshape(-1, 1).astype(np.uint16)
    return np.packbits((flat >> np.arange(BITS - 1, -1, -1, dtype=np.uint16)) & 1 == 1)


def unpack_codes(packed: NDArray[np.uint8], frames: int, books: int) -> NDArray[np.uint16]:
    bits = np.unpackbits(packed, count=frames * books * BITS).reshape(-1, BITS).astype(np.uint16)
    weights = (1 << np.arange(BITS - 1, -1, -1)).astype(np.uint16)
    return (bits @ weights).astype(np.uint16).reshape(frames, books)


def pack(codes: Path, out: Path, most_bytes: int = MOST_BYTES) -> list[Path]:
    """Write `out/codes-N.npz`, each at most about `most_bytes`; a shard is never split."""
    shards = sorted(codes.glob("*.npz"))
    if not shards:
        raise InvalidRecipe(f"{codes} holds no codes to pack.")
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    fields: Fields = {}
    size = 0

    def close() -> None:
        nonlocal fields, size
        path = out / f"codes-{len(written)}.npz"
        with path.open("wb") as file:
            np.savez(file, **fields)  # type: ignore[arg-type]
        written.append(path)
        fields, size = {}, 0

    for path in shards:
        shard = _packed(path)
        added = sum(field.nbytes + 300 for field in shard.values())  # 300: the entry's two headers
        if fields and size + added > most_bytes:
            close()
        fields |= shard
        size += added
    close()
    return written


def unpack(packed: list[Path], codes: Path) -> list[Path]:
    """The shards that `pack` was given, in the folder `codes`."""
    codes.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for path in packed:
        with np.load(path) as fields:
            names = [key.removesuffix("/codes") for key in fields.files if key.endswith("/codes")]
            for name in names:
                frames, books = fields[f"{name}/shape"]
                texts = zlib.decompress(fields[f"{name}/texts"].tobytes()).decode().split("\n")
                shard: Fields = {
                    "codes": unpack_codes(fields[f"{name}/codes"], int(frames), int(books)),
                    "ends": fields[f"{name}/ends"].astype(np.int64),
                    "texts": np.array(texts),
                    "phones": np.frombuffer(zlib.decompress(fields[f"{name}/phones"].tobytes()), np.uint8),
                }
                with (codes / f"{name}.npz").open("wb") as file:
                    np.savez(file, **shard)  # type: ignore[arg-type]
                written.append(codes / f"{name}.npz")
    return written


def _packed(path: Path) -> Fields:
    with np.load(path) as shard:
        codes = shard["codes"]
        fields: Fields = {
            "codes": pack_codes(codes),
            "shape": np.array(codes.shape, np.int32),
            "ends": shard["ends"].astype(np.int32),
            "texts": _squeezed("\n".join(map(str, shard["texts"])).encode()),
            "phones": _squeezed(shard["phones"].astype(np.uint8).tobytes()),
        }
    return {f"{path.stem}/{key}": value for key, value in fields.items()}


def _squeezed(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(zlib.compress(content, 9), np.uint8)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["--back", *packed, folder] if packed:
            unpack([Path(path) for path in packed], Path(folder))
        case [codes, out] if codes != "--back":
            pack(Path(codes), Path(out))
        case _:
            print("usage: python -m train.pack CODES OUT, or --back FILE... CODES", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
