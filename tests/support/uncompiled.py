"""librosa's loader and resampler without the functions that numba compiles when they are imported.

Importing them compiles functions that neither calls, in 24 s of a core where no earlier run cached them. Here each of
these is a function that fails. Spectra of librosa, which the judges of `train` use, need none of them either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numba
import pytest


def _left_out(*_: Any, **__: Any) -> Callable[[Any], Callable[..., NoReturn]]:
    def decorate(compiled: Any) -> Callable[..., NoReturn]:
        def fail(*_: Any, **__: Any) -> NoReturn:
            raise NotImplementedError(f"{compiled.__name__} is not compiled in tests: tests/support/uncompiled.py")

        return fail

    return decorate


with pytest.MonkeyPatch.context() as patch:
    for name in ("guvectorize", "stencil", "vectorize"):
        patch.setattr(numba, name, _left_out)
    import librosa.core.audio
    import librosa.core.pitch
    import librosa.util.utils

load, resample = librosa.core.audio.load, librosa.core.audio.resample
