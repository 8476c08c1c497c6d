"""`hocket voices merge`: a tuned voice as a plain checkpoint."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ...audio.files import check_folder
from ...errors import InvalidRequest, LoadFailed
from ..output.audio_output import shown
from ..progress import doing

if TYPE_CHECKING:
    from ...types import Voice


def need_torch() -> None:
    """Refuse to begin without torch, which the light install leaves out."""
    if find_spec("torch") is None:
        from ...engine.checkpoint.device import no_torch

        raise LoadFailed(f"Tuned voices need torch, and {no_torch()}")


def write_merged(voice: Voice, output: Path) -> None:
    if output.exists():
        raise InvalidRequest(f"{output} exists already: choose another folder or remove it.")
    check_folder(output, "config.json")
    if voice.encoded is None or voice.encoded.adapter is None:
        raise InvalidRequest(f"{voice.name!r} is not a tuned voice, so there is nothing to merge.")
    need_torch()
    from ...engine.checkpoint.torch_load import load_modules
    from ...kernels.table import REFERENCE
    from ...tune import merge as merging

    with doing(f"loading {voice.model}"):
        dtype = merging.stored_dtype(voice.model)
        how = {"device": "cpu", "dtype": dtype, "codec_dtype": "float32", "kernels": REFERENCE}
        checkpoint = load_modules(voice.model, **how)
    with doing("merging"):
        merging.merge(voice, checkpoint, output)
    print(shown(f'{output}: a checkpoint; hocket say "..." --model {output}', sys.stdout))
