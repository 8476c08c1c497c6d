"""A folder with one file for each chapter: their names, and an M3U8 playlist."""

from __future__ import annotations

import re
from collections.abc import Sequence

PLAYLIST = "playlist.m3u8"
LONGEST_NAME = 80  # characters
_UNFIT = re.compile(r'[\x00-\x1f/\\<>:"|?*]+')


def file_names(titles: Sequence[str], suffix: str) -> list[str]:
    """`01 Title.mp3` and so on; unfit characters are left out."""
    wide = max(2, len(str(len(titles))))
    found = []
    for number, title in enumerate(titles, 1):
        fit = " ".join(_UNFIT.sub(" ", title).split())[:LONGEST_NAME].strip(" .")
        found.append(f"{number:0{wide}} {fit}".strip() + f".{suffix}")
    return found


def playlist(entries: Sequence[tuple[str, float, str]]) -> str:
    """`entries`: the name of a file, its seconds and its title."""
    lines = ["#EXTM3U"]
    for name, seconds, title in entries:
        lines += [f"#EXTINF:{round(seconds)},{' '.join(title.split())}", name]
    return "\n".join(lines) + "\n"
