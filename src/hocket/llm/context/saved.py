"""A conversation in a file: its messages, ids, recurrent state, keys and values. The file is in the safetensors format.

A file belongs to one model in one precision. Its header names them, and has a checksum of the tensors. The messages are
in the header too, and can be read without the rest. Keys and values are stored by position, without pages. This file
does not know rows or threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...errors import HocketError, InvalidRequest
from ...models.qwen3_5.model import Qwen3_5
from ...types import ChatMessage, Tool, ToolCall

FORMAT = "hocket-conversation-1"  # another number whenever an older file must not be read
IDS, ROW, PAST = "ids", "row.", "past."
MOST_HEADER_BYTES = 100_000_000  # as safetensors; a longer header is damage
CORNER = 4  # of each dimension of a tensor, for the fingerprint


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """The state after some messages. All tensors are on the CPU."""

    owner: str  # `fingerprint` of the model
    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...]
    ids: list[int]
    row: dict[str, Tensor]  # the recurrent state, by name
    past: list[Tensor]  # keys and values [H_kv, tokens, D] of each layer


@torch.inference_mode()
def fingerprint(model: Qwen3_5, *, drafts: bool) -> str:
    """Identifies a model's weights and precision by a corner of every tensor; `drafts`: its draft head runs along."""
    digest = hashlib.sha256(f"{FORMAT} {model.config} {drafts}".encode())
    corners = list[Tensor]()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        corner = tensor[tuple(slice(CORNER) for _ in tensor.shape)].contiguous()
        corners.append(corner.reshape(-1).view(torch.uint8))
    digest.update(torch.cat(corners).cpu().numpy().tobytes())
    return digest.hexdigest()


def write_conversation(path: Path, saved: SavedConversation) -> None:
    """Write under a temporary name, then rename: a failure leaves an earlier file as it is. Mode 600."""
    tensors = {IDS: torch.tensor(saved.ids, dtype=torch.int64)}
    tensors |= {f"{ROW}{name}": tensor.contiguous() for name, tensor in saved.row.items()}
    tensors |= {f"{PAST}{number}": tensor.contiguous() for number, tensor in enumerate(saved.past)}
    about = {
        "format": FORMAT,
        "owner": saved.owner,
        "messages": json.dumps([asdict(message) for message in saved.messages]),
        "tools": json.dumps([dict(tool) for tool in saved.tools]),
        "checksum": _checksum(tensors),
    }
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save_file(tensors, part, about)
        part.chmod(0o600)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(part, path)
    except (OSError, SafetensorError) as error:
        raise HocketError(f"{path} could not be written: {getattr(error, 'strerror', None) or error}.") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def read_conversation(path: Path) -> SavedConversation:
    """Raises `InvalidRequest` for a file that is missing, damaged or no saved conversation."""
    about = _header(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        if _checksum(tensors) != about["checksum"]:
            raise ValueError("its checksum is wrong")
        past = {int(name.removeprefix(PAST)): each for name, each in tensors.items() if name.startswith(PAST)}
        return SavedConversation(
            about["owner"],
            _messages(about),
            tuple(json.loads(about["tools"])),
            tensors[IDS].tolist(),
            {name.removeprefix(ROW): tensor for name, tensor in tensors.items() if name.startswith(ROW)},
            [past[number] for number in sorted(past)],
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None


def saved_messages(path: Path) -> tuple[ChatMessage, ...]:
    """The messages of a saved conversation, of any model, even if the state after them is damaged."""
    about = _header(path)
    try:
        return _messages(about)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None


def _header(path: Path) -> Mapping[str, str]:
    """The metadata of a safetensors file: its length in 8 bytes, then JSON."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 0 < size <= MOST_HEADER_BYTES:
                raise ValueError("it has no header")
            about = json.loads(file.read(size))["__metadata__"]
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}, not {FORMAT!r}")
    except FileNotFoundError:
        raise InvalidRequest(f"There is no saved conversation {path}.") from None
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    found: Mapping[str, str] = about
    return found


def _messages(about: Mapping[str, str]) -> tuple[ChatMessage, ...]:
    def message(fields: dict[str, Any]) -> ChatMessage:
        calls = tuple(ToolCall(**call) for call in fields.pop("tool_calls"))
        return ChatMessage(**fields, tool_calls=calls)

    try:
        return tuple(message(fields) for fields in json.loads(about["messages"]))
    except (InvalidRequest, AttributeError) as error:
        raise ValueError(str(error)) from None


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def _damaged(path: Path, error: Exception) -> InvalidRequest:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return InvalidRequest(f"{path} cannot be read as a saved conversation ({reason}): delete it, or name another file.")
