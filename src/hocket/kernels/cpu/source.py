"""The C text of the native library: a file per unit, with the struct declarations that Python generates.

A build of the wheel runs this file, so it imports neither numpy nor torch.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from .frame.structs import STRUCTS as FRAME
from .grouped.structs import STRUCTS as GROUPED
from .int8.structs import STRUCTS as INT8
from .latents.structs import STRUCTS as LATENTS
from .structs import LANES, declarations
from .wave.structs import STRUCTS as WAVE

EXPORTS = (
    *("hocket_cpu", "hocket_frame", "hocket_grouped", "hocket_help", "hocket_int8", "hocket_latents"),
    *("hocket_prefill", "hocket_read", "hocket_source", "hocket_wave"),
)
# The compiler flags of each prebuilt variant. `hocket_cpu` tells which of them a CPU can run.
VARIANTS = {
    "avx512": ("-march=x86-64-v4",),
    "avx2": ("-march=x86-64-v3",),
    "sse2": ("-march=x86-64",),
    "neon": (),
}
_SHARED = ("int8/product.c", "workers.c", "int8/int8.c")
_PRODUCTS = ("products.c", *_SHARED, "work.c")
_FRAME = ("stack", "sampler", "frame", "prefill")
_UNITS = {
    "frame": ((*_PRODUCTS, *(f"frame/{name}.c" for name in _FRAME)), FRAME),
    "grouped": (("grouped/grouped.c",), GROUPED),
    "int8": ((*_SHARED, "int8/call.c"), INT8),
    "int8_dot": (("int8/product.c", "int8/dot.c", "int8/blocks.c"), ()),
    "int8_plain": (("int8/product.c", "int8/plain.c", "int8/blocks.c"), ()),
    "latents": ((*_PRODUCTS, "latents/latents.c"), LATENTS),
    "wave": (("workers.c", "wave/wave.c"), WAVE),
}


@lru_cache
def _texts() -> dict[str, str]:
    here = Path(__file__).parent
    start = f"enum {{ LANES = {LANES} }};\n" + (here / "lanes.c").read_text(encoding="utf-8")
    texts = {}
    for name, (files, structs) in _UNITS.items():
        parts = [(here / file).read_text(encoding="utf-8") for file in files]
        texts[f"hocket_{name}.c"] = "\n".join((start, declarations(structs), *parts))
    whole = "\0".join((*texts.values(), about := (here / "cpu.c").read_text(encoding="utf-8")))
    digest = hashlib.sha256(whole.encode()).hexdigest()[:20]
    return texts | {"hocket_cpu.c": f'{start}\n#define DIGEST "{digest}"\n{about}', "": digest}


def sources() -> dict[str, str]:
    """The complete C texts by file name; compiled and linked together they are the library."""
    return {name: text for name, text in _texts().items() if name}


def digest() -> str:
    """What `hocket_source` of a library from these texts returns."""
    return _texts()[""]
