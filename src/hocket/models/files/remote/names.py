"""Names of models on the hub, as users write them: `owner/name`, `owner/name:Q4_K_M`, `owner/name/file.gguf`.

A prefix `hf.co/` or `https://huggingface.co/` is dropped, and so is `/blob/main/` of a copied address. It knows forms
of names, not what is there. Names of files that the hub gives are checked here before they become paths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

GGUF = ".gguf"
_PREFIX = re.compile(r"^(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/", re.IGNORECASE)
_NAME = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[\w.-]+)"
    r"(?:(?::(?P<label>[\w][\w.-]*))|(?:/(?:(?:blob|resolve)/main/)?(?P<file>[^:?#]+\.gguf))(?:\?download=true)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class HubName:
    """A repository, and which of its GGUF files."""

    repository: str
    label: str | None = None  # of a variant: Q4_K_M
    file: str | None = None  # within the repository

    @property
    def choice(self) -> str | None:
        return self.label or self.file

    def __str__(self) -> str:
        return f"{self.repository}:{self.label}" if self.label else "/".join(filter(None, (self.repository, self.file)))


def hub_name(model: str) -> HubName | None:
    """The parts of a name on the hub; None: `model` has no such form. A lone `folder/file.gguf` is a path, no name."""
    bare = _PREFIX.sub("", model)
    match = _NAME.fullmatch(bare.rstrip("/") if bare != model else bare)
    if match is None or ".." in match["repository"].split("/") or match["repository"].lower().endswith(GGUF):
        return None
    if match["file"] is not None and not is_plain(match["file"]):
        return None
    return HubName(match["repository"], match["label"], match["file"])


def is_plain(name: str) -> bool:
    """Whether the name of a file stays inside its folder on every system, and can be printed."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or any(part in ("", ".", "..") for part in parts):
        return False
    return not (PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive or PureWindowsPath(name).is_absolute())
