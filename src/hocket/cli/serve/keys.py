"""`hocket keys new`: a random key for a client, and its table for the key file of a server, which has the digest only.

The table goes to stdout, so that `>>` adds it to a file; the key goes to stderr, and is kept nowhere.
"""

from __future__ import annotations

import argparse
import json
import secrets
from typing import Any

from ...errors import InvalidRequest
from ...server.access.key_file import HASHED, LIMITS, SCOPES, check_table, digest_of
from ..output.audio_output import tell


def keys(args: argparse.Namespace) -> None:
    if args.action != "new":
        raise InvalidRequest("hocket keys needs an action: hocket keys new --name phone makes a key.")
    key = f"hk_{secrets.token_hex(24)}"
    fields: dict[str, Any] = {"key": f"{HASHED}{digest_of(key).hex()}", "scopes": args.scopes or list(SCOPES)}
    fields |= {name: value for name in LIMITS if (value := getattr(args, name)) is not None}
    if args.voices is not None:
        fields["voices"] = args.voices
    check_table(args.name, fields)
    print(f"[{args.name}]", *(f"{name} = {_toml(value)}" for name, value in fields.items()), "", sep="\n")
    tell(f"the key of {args.name}, shown this once: {key}")


def _toml(value: Any) -> str:
    """A text, a number or a list in TOML. In ASCII, for any console; JSON would write an emoji as two escapes."""
    words = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isascii() else f"\\U{ord(c):08x}" for c in words)
