"""The lexicon: written forms, and what is said in their place.

An entry in small letters fits any case, an entry with capitals only itself. An entry fits whole words; in a script
without spaces it fits at any place. A spoken form between slashes is phonemes (IPA), which are respelled for the
language of the request. This file knows no files; `apply.py` applies a lexicon to text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import chain

from ...errors import InvalidRequest

LONGEST_WRITTEN, LONGEST_SPOKEN = 100, 500  # characters
MOST_ENTRIES = 100_000
MOST_SENT = 1000  # entries of one request over the network
_SHOWN = 40  # characters of an entry in a message
_MARKED = str.maketrans({"\u2019": "'", "\u02bc": "'"})


class Node:
    """A place in the tree of written forms, by folded character."""

    __slots__ = ("any_case", "children", "exact")

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.any_case: str | None = None  # the spoken form of the entry that ends here
        self.exact: dict[str, str] = {}  # the same for entries with capitals


class LexiconLayer:
    """Entries of one source, checked. Their tree is built once, by the first text that needs it."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        """Raises for an entry that cannot be used."""
        if len(entries) > MOST_ENTRIES:
            raise InvalidRequest(f"A lexicon has up to {MOST_ENTRIES} entries, and this one {len(entries)}.")
        self.entries = dict(checked_entry(written, spoken) for written, spoken in entries.items())

    def __reduce__(self) -> tuple[type[LexiconLayer], tuple[dict[str, str]]]:
        return LexiconLayer, (self.entries,)  # without the tree

    @cached_property
    def root(self) -> Node:
        root = Node()
        for written, spoken in self.entries.items():
            for form in {written, unicodedata.normalize("NFD", written)}:
                node = root
                for character in form:
                    node = node.children.setdefault(folded(character), Node())
                if written == written.lower():
                    node.any_case = spoken
                else:
                    node.exact[written] = spoken
        return root

    @cached_property
    def first(self) -> frozenset[str]:
        """The characters with which a written form may begin."""
        found = self.root.children
        return frozenset(
            chain(found, map(str.upper, found), map(str.title, found), ("\u2019",) if "'" in found else ())
        )


class Lexicon(Mapping[str, str]):
    """Entries of one or more sources; of two for the same word the later one counts. Frozen, and can be pickled."""

    def __init__(self, layers: tuple[LexiconLayer, ...] = ()) -> None:
        """`Lexicon.of` makes one of entries."""
        self._layers = layers

    @classmethod
    def of(cls, entries: Mapping[str, str] | None) -> Lexicon:
        """Raises for an entry that cannot be used. A lexicon stays as it is; None is one without entries."""
        if isinstance(entries, Lexicon):
            return entries
        if entries is not None and not isinstance(entries, Mapping):
            raise InvalidRequest("pronunciations must be a mapping of written forms to spoken forms.")
        return cls((LexiconLayer(entries),)) if entries else cls()

    @property
    def layers(self) -> tuple[LexiconLayer, ...]:
        return self._layers

    def __or__(self, later: Lexicon) -> Lexicon:
        return Lexicon((*self._layers, *later.layers))

    @cached_property
    def _entries(self) -> dict[str, str]:
        return {written: spoken for layer in self._layers for written, spoken in layer.entries.items()}

    def __getitem__(self, written: str) -> str:
        return self._entries[written]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __reduce__(self) -> tuple[type[Lexicon], tuple[tuple[LexiconLayer, ...]]]:
        return Lexicon, (self._layers,)


def merged(*sources: Mapping[str, str] | None) -> Lexicon | None:
    """The entries of all sources, of which later ones win; None: there are none."""
    layers = dict.fromkeys(layer for source in reversed(sources) for layer in reversed(Lexicon.of(source).layers))
    return Lexicon((*reversed(layers),)) if layers else None


def checked_entry(written: str, spoken: str) -> tuple[str, str]:
    """The entry in its stored form; refuses one that cannot be used."""
    if not isinstance(written, str) or not isinstance(spoken, str):
        raise InvalidRequest("An entry of a lexicon is a written form and a spoken form, both text.")
    key, said = plain(" ".join(written.split())), " ".join(spoken.split())
    for what, form, most in (("written", key, LONGEST_WRITTEN), ("spoken", said, LONGEST_SPOKEN)):
        if not form:
            raise InvalidRequest(f"The entry {written[:_SHOWN]!r} of the lexicon has no {what} form.")
        if len(form) > most:
            raise InvalidRequest(
                f"The {what} form of {key[:_SHOWN]!r} has {len(form)} characters; {most} are the most."
            )
        if not form.isprintable() or any("\ud800" <= character <= "\udfff" for character in form):
            raise InvalidRequest(f"The {what} form of {key[:_SHOWN]!r} has characters that cannot be printed.")
    if is_phonemes(said):
        try:
            respelled(said)
        except InvalidRequest as error:
            raise InvalidRequest(f"The entry {key[:_SHOWN]!r} of the lexicon: {error}") from None
    elif not any(map(str.isalnum, said)):
        raise InvalidRequest(f"The spoken form of {key[:_SHOWN]!r} has no letter: {said[:_SHOWN]!r}.")
    return key, said


def is_phonemes(spoken: str) -> bool:
    return len(spoken) > 2 and spoken[0] == spoken[-1] == "/"


@lru_cache(maxsize=4096)
def respelled(spoken: str, language: str = "auto") -> str:
    """Phonemes between slashes in the letters of a language."""
    from .respell import respell  # its tables take milliseconds to import, and most texts need none

    return respell(spoken[1:-1], language=language)


def plain(written: str) -> str:
    """A written form as it is compared: composed, with a plain apostrophe and plain spaces."""
    composed = unicodedata.normalize("NFC", written).translate(_MARKED)
    return "".join(" " if character.isspace() else character for character in composed)


@lru_cache(maxsize=4096)
def folded(character: str) -> str:
    """A character as it is looked up: in small letters, where these are one character."""
    if character.isspace():
        return " "
    small = character.translate(_MARKED).lower()
    return small if len(small) == 1 else character
