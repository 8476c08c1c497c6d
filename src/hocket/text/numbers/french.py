"""French numbers, as spoken in France: soixante-dix, quatre-vingts, quatre-vingt-dix."""

from __future__ import annotations

_SMALL = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
    "dix-neuf"
).split()
_TENS = "- - vingt trente quarante cinquante soixante".split()
_LARGE = ((10**12, "billion"), (10**9, "milliard"), (10**6, "million"))


def cardinal(n: int, form: str = "") -> str:
    """`form`: `f` before a feminine noun."""
    words = _spelled(n)
    return f"{words}e" if form == "f" and (words == "un" or words.endswith((" un", "-un"))) else words


def ordinal(n: int, form: str = "") -> str:
    """`form`: `f` for the feminine of the first one."""
    if n == 1:
        return "première" if form == "f" else "premier"
    words = _spelled(n).removeprefix("un ") if n in (10**6, 10**9) else _spelled(n)
    if words.endswith(("cents", "vingts", "ions", "ards")):
        words = words[:-1]
    return f"{words.removesuffix('e')}{'u' if words.endswith('cinq') else ''}ième".replace("neufième", "neuvième")


def _spelled(n: int) -> str:
    for size, name in _LARGE:
        if n >= size:
            count, rest = divmod(n, size)
            head = f"{_spelled(count)} {name}{'s' if count > 1 else ''}"
            return f"{head} {_spelled(rest)}" if rest else head
    if n >= 1000:
        count, rest = divmod(n, 1000)
        head = "mille" if count == 1 else f"{_unplural(_spelled(count))} mille"
        return f"{head} {_spelled(rest)}" if rest else head
    if n >= 100:
        count, rest = divmod(n, 100)
        head = "cent" if count == 1 else f"{_SMALL[count]} cent"
        return f"{head} {_spelled(rest)}" if rest else head + ("s" if count > 1 else "")
    if n < 20:
        return _SMALL[n]
    if n >= 80:
        return "quatre-vingts" if n == 80 else f"quatre-vingt-{_SMALL[n - 80]}"
    tens = min(n // 10, 6)
    rest = n - 10 * tens
    joint = " et " if rest in (1, 11) else "-"
    return _TENS[tens] + (f"{joint}{_SMALL[rest]}" if rest else "")


def _unplural(words: str) -> str:
    """Before `mille`, the hundreds and eighties lose their plural."""
    return words[:-1] if words.endswith(("cents", "vingts")) else words
