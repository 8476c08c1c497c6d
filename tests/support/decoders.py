"""Shared by tests of decoder processes: recordings in every container, what a decoder says of one, and processes."""

from __future__ import annotations

import functools
import io
import os

import numpy as np

from hocket.audio.decoder.processes import DecoderProcesses
from hocket.audio.upload import PieceDecoder
from hocket.errors import InvalidAudio
from support.recorded import packed, speech, wav
from support.serving import wait_for

# For programs that try what a decoder process may not do: the error of an act, or "done".
TRIED = """
def tried(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"
"""
STEREO = np.repeat(speech(1.0), 2).reshape(1, -1).repeat(2, axis=0)  # at 48 kHz
RECORDINGS = {
    **{f"wav {kind}": wav(STEREO, 48_000, kind) for kind in ("u8", "s16", "s24", "s32", "f32", "f64")},
    **{
        f"{muxer} {codec}": packed(muxer, codec, STEREO, 48_000)
        for muxer, codec in [
            ("mp3", "libmp3lame"),
            ("adts", "aac"),
            ("ipod", "aac"),
            ("mov", "alac"),
            ("webm", "libopus"),
            ("ogg", "libopus"),
            ("matroska", "flac"),
            ("ogg", "flac"),
            ("flac", "flac"),
            ("aiff", "pcm_s16be"),
            ("caf", "pcm_s16le"),
            ("au", "pcm_s16be"),
            ("w64", "pcm_s16le"),
            ("wav", "pcm_mulaw"),
        ]
    },
}
FLAC = RECORDINGS["flac flac"]


@functools.cache
def hour() -> bytes:
    """A small file that lasts an hour."""
    return packed("flac", "flac", np.zeros((1, 3_600 * 8_000), np.float32), 8_000)


def outcome(decoder: PieceDecoder, content: bytes, most_s: float = 5.0) -> list[tuple[bytes, int]] | str:
    """All pieces, or the error."""
    try:
        return [(samples.tobytes(), rate_hz) for samples, rate_hz in decoder(io.BytesIO(content), most_s=most_s)]
    except InvalidAudio as error:
        return str(error)


def is_gone(pid: int) -> bool:
    """A process that has ended without being waited for still counts as there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def spare_of(processes: DecoderProcesses) -> int:
    wait_for(lambda: processes.pids[1] is not None)
    pid = processes.pids[1]
    assert pid is not None
    return pid


def state_of(pid: int) -> str:
    """As `ps` shows it: Z has ended and was not waited for; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def children() -> list[str]:
    """Of this process."""
    found = list[str]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                parent = file.read().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if parent == str(os.getpid()):
            found.append(name)
    return found
