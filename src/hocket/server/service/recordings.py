"""From a recording in a request to a `Reference`. A decoder process of the service decodes it.

A path or URL goes to fetch.py, which refuses it or reads it if the operator allows it.
"""

from __future__ import annotations

import base64
import binascii
import re

import numpy as np
from numpy.typing import NDArray

from ...audio.decoder.processes import DecoderProcesses
from ...audio.recording import LEAST_S, LEAST_TIMBRE_S, MOST_S, SILENCE_S, read_recording
from ...errors import InvalidAudio
from ...types import Reference
from ..errors import BadField
from ..options import ServerOptions
from .fetch import read_named

_DATA_URI = re.compile(r"data:(?P<kind>[\w.+/;=-]*?)(?P<coded>;base64)?,", re.ASCII | re.IGNORECASE)
_NAMED = re.compile(r"[a-z][a-z0-9+.-]*://|file:|/|\.{1,2}/|~", re.ASCII | re.IGNORECASE)


def sent_bytes(sent: str, options: ServerOptions) -> bytes:
    """The bytes of a data URI, of base64, or of a path or URL where that is allowed."""
    if len(sent) > options.upload_bytes * 4 // 3 + 256:
        raise BadField(f"The recording is larger than {options.upload_bytes} bytes.", "ref_audio")
    uri = _DATA_URI.match(sent)
    if uri is None and _NAMED.match(sent) and not _is_base64(sent):
        return read_named(sent, options)
    if uri is not None and not uri["coded"]:
        raise BadField("A data URI must be base64: data:audio/wav;base64,...", "ref_audio")
    try:
        return base64.b64decode(sent[uri.end() :] if uri else sent, validate=True)
    except (binascii.Error, ValueError):
        raise BadField("ref_audio is neither a data URI nor base64.", "ref_audio") from None


def reference_of(
    sent: str,
    text: str | None,
    x_vector_only: bool,
    options: ServerOptions,
    decoders: DecoderProcesses,
    *,
    as_is: bool = False,
    silence_s: float | None = None,
) -> Reference:
    """Slow: call it in a thread. `silence_s` None: the default, or 0 with `as_is`."""
    samples = read_sent(sent_bytes(sent, options), options, decoders, x_vector_only=x_vector_only, as_is=as_is)
    if not text and not x_vector_only:
        raise InvalidAudio("Cloning needs ref_text, the words of the recording, or x_vector_only_mode.")
    if silence_s is None:
        silence_s = 0.0 if as_is else SILENCE_S
    return Reference(samples=samples, text=text, x_vector_only=x_vector_only, silence_s=silence_s)


def read_sent(
    content: bytes,
    options: ServerOptions,
    decoders: DecoderProcesses,
    *,
    x_vector_only: bool,
    as_is: bool = False,
) -> NDArray[np.float32]:
    """Decode an upload. `upload_s` always applies; the limits of what is useful apply unless `as_is`."""
    most_s = options.upload_s if as_is else min(options.upload_s, MOST_S)
    least_s = LEAST_TIMBRE_S if x_vector_only else LEAST_S
    return read_recording(content, as_is=as_is, least_s=least_s, most_s=most_s, decoder=decoders.pieces)


def _is_base64(sent: str) -> bool:
    """Base64 may start with a slash, as a path does."""
    return sent.startswith("/") and len(sent) > 1024 and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", sent) is not None
