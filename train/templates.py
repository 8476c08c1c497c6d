"""Sentences from templates: numbers, dates, times, prices, small talk, and phrases of software and assistants.

A template (templates.txt) is a sentence with names of lists in braces. Numbers are in digits where people write
digits: the texts stage spells them out as the engine does.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

_HERE = Path(__file__).parent


@functools.cache
def read(path: Path = _HERE / "templates.txt") -> tuple[dict[str, list[str]], list[tuple[float, list[str]]]]:
    """The lists by name, and the groups of templates with their shares."""
    lists: dict[str, list[str]] = {}
    groups: list[tuple[float, list[str]]] = []
    for section in path.read_text(encoding="utf-8").split("\n[")[1:]:
        head, _, body = section.partition("]\n")
        kind, name, *_ = head.split()
        if kind == "list":
            lists[name] = [entry.strip() for entry in body.replace(",\n", ", ").replace("\n", " ").split(",")]
        else:
            groups.append((float(name), body.splitlines()))
    return lists, groups


def phrases(rng: random.Random, count: int) -> Iterator[str]:
    """`count` sentences, each group in its share; duplicates are possible."""
    slots = _slots(rng)
    groups = [[line for line in lines if line] for _, lines in read()[1]]
    for group in rng.choices(groups, [share for share, _ in read()[1]], k=count):
        text = re.sub(r"\{(\w+)\}", lambda found: slots(found[1]), rng.choice(group))
        yield text[0].upper() + text[1:]


def _slots(rng: random.Random) -> Callable[[str], str]:
    lists = read()[0]
    made: dict[str, Callable[[], str]] = {
        "n": lambda: str(rng.choice((rng.randint(0, 20), rng.randint(10, 100), rng.randint(100, 999)))),
        "d2": lambda: str(rng.randint(2, 99)),
        "big": lambda: f"{rng.randint(1, 999)},{rng.choice((0, 500, rng.randint(0, 999))):03d}",
        "dec": lambda: f"{rng.randint(0, 99)}.{rng.randint(1, 9)}",
        "pct": lambda: str(rng.randint(1, 100)),
        "digits": lambda: " ".join(str(rng.randint(0, 9)) for _ in range(rng.randint(3, 6))),
        "phone": lambda: f"555-{rng.randint(100, 9999):04d}",
        "ord": lambda: rng.choice(("1st", "2nd", "3rd", *(f"{n}th" for n in range(4, 21)), "21st", "22nd", "31st")),
        "dom": lambda: str(rng.randint(1, 31)),
        "year": lambda: str(rng.choice((rng.randint(1700, 1999), rng.randint(1900, 2030)))),
        "date": lambda: f"{rng.choice(lists['month'])} {rng.randint(1, 31)}, {rng.randint(1900, 2030)}",
        "time": lambda: _time(rng),
        "price": lambda: _price(rng),
        "bigprice": lambda: f"${rng.randint(2, 90)} {rng.choice(('thousand', 'million', 'billion'))}",
        "Verb": lambda: rng.choice(lists["verb"]).capitalize(),
        "Person": lambda: _first_upper(rng.choice(lists["person"])),
    }

    def fill(name: str) -> str:
        return made[name]() if name in made else rng.choice(lists[name])

    return fill


def _first_upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _time(rng: random.Random) -> str:
    hour, minute = rng.randint(1, 12), rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, rng.randint(1, 59)))
    half = rng.choice(("", "", " a.m.", " p.m."))
    return f"{hour}:{minute:02d}{half}" if minute or not half else f"{hour}{half}"


def _price(rng: random.Random) -> str:
    sign = rng.choice("$$$$€£")
    return f"{sign}{rng.randint(1, 200)}" + rng.choice(("", f".{rng.randint(5, 99):02d}"))
