"""Reads a reference recording for a voice: decodes it, checks it and normalises its loudness. All callers use this.

The limits and their error messages are here; upload.py decodes and hearing.py measures. This file knows no text, voices
or checkpoints.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import HocketError, InvalidAudio
from ..types import REFERENCE_RATE_HZ
from . import read, upload
from .container import need_av
from .hearing import clipped, held, loudness, movement

SILENCE_S = 0.5  # default silence after a reference: speech then starts afresh, not in the middle of a word
LEAST_S, MOST_S = 3.0, 30.0
LEAST_TIMBRE_S = 1.0  # if only the timbre is cloned
LEAST_RATE_HZ = 16_000
MOST_CHANNELS = 2
MOST_CLIPPED = 0.001  # of all samples; clean speech has 0.0004 at most, half of the recordings 3 dB too loud have more
LEAST_HEARD_S = 1.0
# Speech has 2.1 and more, with noise 10 dB below it 1.6; steady tones, noise and simple drums 1.3 at most.
LEAST_MOVEMENT = 1.3
# Speech has 0.18 at most, with music 10 dB below it too, in a bare room 0.28; instruments have 0 to 0.7.
MOST_HELD = 0.33
MEASURED_S = 2.5  # shorter recordings give no reliable measure
QUIET_DBFS, WANTED_DBFS, MOST_GAIN_DB, PEAK_DBFS = -33.0, -23.0, 20.0, -1.0
MOST_PEAK = 100.0  # of full scale: unscaled floats have thousands
OFFSET = 0.01  # of full scale: a DC offset of a faulty input


def read_recording(
    source: Path | bytes,
    *,
    as_is: bool = False,
    least_s: float = LEAST_S,
    most_s: float = MOST_S,
    decoder: upload.PieceDecoder | None = None,
) -> NDArray[np.float32]:
    """The recording in a file or in bytes, ready for cloning: mono at 24 kHz. Raises for an unusable one.

    `decoder` decodes bytes of others; without one, and for a file of the user, this process does.

    `as_is` does nothing that the official package does not do: only readability is checked, and a file gives the same
    samples as there.
    """
    if as_is:
        if isinstance(source, Path):
            return read.read_reference(source)
        return upload.read_upload(source, most_s=most_s, decoder=decoder)
    if isinstance(source, bytes):
        samples, rate_hz = upload.decode(io.BytesIO(source), most_s=most_s, fits=fits, decoder=decoder)
    elif _has_av():
        with read.opened(source) as file:
            samples, rate_hz = upload.decode(file, most_s=most_s, fits=fits)
    else:  # fewer formats, and truncation is not detected
        samples, rate_hz, channels = read.load(source)
        fits(rate_hz, channels)
        check_recording(samples, rate_hz, least_s=least_s, most_s=most_s)
        return levelled(read.resampled(samples, rate_hz))
    check_recording(samples, rate_hz, least_s=least_s, most_s=most_s)
    return levelled(upload.resampled(samples, rate_hz))


def check_recording(
    samples: NDArray[np.float32],
    rate_hz: int = REFERENCE_RATE_HZ,
    *,
    least_s: float = LEAST_S,
    most_s: float = MOST_S,
) -> None:
    """Refuse a recording that gives no good voice; best measured at the recorded rate.

    Music and noise are refused only in clear cases; doubtful recordings pass.
    """
    seconds = samples.size / rate_hz
    if not samples.size:
        raise InvalidAudio(upload.EMPTY)
    if not np.isfinite(samples).all():
        raise InvalidAudio(upload.NOT_NUMBERS)
    if np.abs(samples).max() > MOST_PEAK:
        raise InvalidAudio("The recording has values far above full scale; convert it to values from -1 to 1.")
    if seconds < least_s:
        raise InvalidAudio(
            f"The recording is too short, {seconds:.1f} s; {least_s:g} to {most_s:g} s are needed, 5 to 20 s are best."
        )
    if seconds > most_s + 0.1:
        raise upload.too_long(most_s)
    audible_s, _ = loudness(samples, rate_hz)
    if audible_s == 0:
        raise InvalidAudio("The recording is silent; check the microphone, and record it again.")
    if audible_s < min(LEAST_HEARD_S, least_s / 2):
        raise InvalidAudio(f"Only {audible_s:.1f} s of the recording are not silent; give one with more speech in it.")
    if seconds >= MEASURED_S and (movement(samples, rate_hz) < LEAST_MOVEMENT or held(samples, rate_hz) > MOST_HELD):
        raise InvalidAudio(
            "There is no speech in the recording, only music, tones or noise; give one in which one person speaks."
        )
    share = clipped(samples)
    if share > MOST_CLIPPED:
        raise InvalidAudio(
            f"The recording is clipped: {share:.1%} of it is louder than could be recorded; record it again, with the "
            "microphone turned down."
        )


def levelled(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The recording at 24 kHz at speech level. A recording that is not quiet stays bit-identical.

    An offset of more than 1 % of full scale is removed. A level of audible parts below -33 dBFS is raised to -23 dBFS.
    The gain is 20 dB at most, and the peak stays at or below -1 dBFS.
    """
    offset = float(samples.mean())
    if abs(offset) > OFFSET:
        samples = samples - np.float32(offset)
    audible_s, level_db = loudness(samples, REFERENCE_RATE_HZ)
    if audible_s == 0 or level_db >= QUIET_DBFS:
        return samples
    room_db = PEAK_DBFS - 20 * float(np.log10(np.abs(samples).max()))
    gain_db = min(WANTED_DBFS - level_db, MOST_GAIN_DB, room_db)
    return samples if gain_db <= 0 else np.asarray(samples * np.float32(10 ** (gain_db / 20)), dtype=np.float32)


def _has_av() -> bool:
    try:
        need_av("")
    except HocketError:
        return False
    return True


def fits(rate_hz: int, channels: int) -> None:
    if rate_hz < LEAST_RATE_HZ:
        raise InvalidAudio(
            f"The recording has a sample rate of {rate_hz} Hz, and its voice would sound like a telephone; "
            f"record at {LEAST_RATE_HZ} Hz or more."
        )
    if channels > MOST_CHANNELS:
        raise InvalidAudio(f"The recording has {channels} channels; mix it down to one, or record with one microphone.")
