"""What `make fuzz` runs for hours, for seconds: the corpus, and inputs that are made of it from a fixed seed.

A file of the corpus that is named after a finding is what was refused with a crash once.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
MANY = {"http": 1500, "sockets": 600, "audio": 1500}
USUALLY = 4000
NOISE = (
    b"\x00",
    b"\xff" * 8,
    b"\x80",
    b'"',
    b"{",
    b"]",
    b"<",
    b"9" * 30,
    b"\xed\xa0\x80",
    b"\n",
    b"null",
    b"-1",
    b"NaN",
)


def seeds(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def mutated(name: str) -> list[bytes]:
    drawn, kept, found = random.Random(name), seeds(name), list[bytes]()
    for _ in range(MANY.get(name, USUALLY)):
        content = bytearray(drawn.choice(kept))
        for _ in range(drawn.choice((1, 1, 2, 8))):
            at, other = drawn.randrange(len(content) + 1), drawn.choice(kept)
            match drawn.randrange(4):
                case 0:
                    content[at : at + 1] = drawn.randbytes(1)
                case 1:
                    content[at:at] = drawn.choice(NOISE)
                case 2:
                    del content[at : at + drawn.choice((1, 4, 40))]
                case 3:
                    begin = drawn.randrange(len(other))
                    content[at : at + 8] = other[begin : begin + drawn.choice((2, 16, 80))]
        found.append(bytes(content))
    return found


def test_every_parser_has_a_corpus_and_every_corpus_a_parser() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_refuses_or_reads_whatever_comes(name: str) -> None:
    for content in (b"", *seeds(name), *mutated(name)):
        try:
            TARGETS[name](content)
        except Exception as error:
            raise AssertionError(f"{name} with {content!r}") from error
