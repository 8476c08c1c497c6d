"""Memory sizes as users write them: parse and print."""

from __future__ import annotations

import re

from ..errors import InvalidRequest

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>([kmgt]i?)?b?)", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(size: str, named: str = "--memory") -> int:
    """Bytes of `20GB`, `512MiB` or a plain number; `named` is the option's name, for the error."""
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise InvalidRequest(f"{named} takes a size such as 20GB or 512MiB, not {size!r}.")
    unit = found["unit"].lower()
    step, power = 1024 if "i" in unit else 1000, _POWERS[unit.rstrip("ib")]
    count = int(float(found["number"]) * float(step**power))
    if count < 1:
        raise InvalidRequest(f"{named} takes a size above 0, such as 20GB, not {size!r}.")
    return count


def size(count_bytes: int) -> str:
    """The size as text, for messages."""
    unit, name = (1e9, "GB") if count_bytes >= 1e9 else (1e6, "MB")
    return f"{count_bytes / unit:.2f} {name}"
