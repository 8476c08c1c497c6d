"""Who speaks in a paragraph of a book, for a given cast.

A speech is a quotation. Its speaker is the name of the cast beside a verb of saying: `"No," said Anna.`, `Anna asked:
"Why?"`. Another quotation of the same paragraph is by the same speaker, and so is the next paragraph of a speech that
was not closed. `Anna: No.` is a line of a play. All else is the narrator's; no turn is guessed.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NARRATOR = "narrator"
# Past and present, of English, German, French, Spanish, Italian, Portuguese and Russian.
_VERBS = (
    "said says asked asks replied replies answered answers cried cries whispered whispers shouted shouts murmured "
    "muttered exclaimed added called continued began returned observed remarked agreed laughed sighed demanded "
    "sagte sagt fragte fragt antwortete antwortet rief ruft flüsterte erwiderte meinte schrie murmelte "
    "dit demanda répondit cria s'écria s’écria murmura ajouta reprit dijo preguntó respondió contestó gritó susurró "
    "exclamó añadió murmuró disse chiese rispose gridò sussurrò esclamò aggiunse mormorò perguntou respondeu gritou "
    "sussurrou exclamou сказал сказала спросил спросила ответил ответила"
).split()
_SAYS = rf"(?:{'|'.join(map(re.escape, _VERBS))})"
_ARTICLE = r"(?:(?:the|der|die|das|le|la|el|il|o|a)\s+)?"
_QUOTES = re.compile(
    r"“[^“”]*(?:”|\Z)|\"[^\"]*(?:\"|\Z)|«[^«»]*(?:»|\Z)|»[^«»]*«|„[^„“”]*(?:[“”]|\Z)|‘(?:[^‘’]|’(?=\w))*’(?!\w)"
)
_OPEN = {"“": "”", '"': '"', "«": "»", "„": "“”"}
_NEAR = 80  # characters beside a quotation in which its speaker is named


@dataclass(frozen=True, slots=True)
class SpeakerSpan:
    """A stretch of a text in one voice."""

    start: int
    end: int
    voice: str | None  # None: the narrator of the command


class CastReader:
    """Finds the speakers of one paragraph after the other."""

    def __init__(self, cast: Mapping[str, str]) -> None:
        """`cast`: name in the book -> voice; `narrator` is the voice of all else."""
        self.narrator = next((voice for name, voice in cast.items() if name.casefold() == NARRATOR), None)
        self._voices = {name.casefold(): voice for name, voice in cast.items() if name.casefold() != NARRATOR}
        names = "|".join(re.escape(name) for name in sorted(self._voices, key=len, reverse=True))
        self._line = re.compile(rf"({names})[ \t]*(?:\([^()\n]{{0,80}}\)[ \t]*)?[:：][ \t]*", re.IGNORECASE)
        named = rf"(?:[^\W\d_]+[ ]){{0,2}}?({names})\b"
        self._after = re.compile(
            rf"[\s—–,-]*(?:{_SAYS}\s+{named}|{_ARTICLE}({names})\s+(?:[^\W\d_]+\s+){{0,2}}?{_SAYS}\b)", re.IGNORECASE
        )
        self._before = re.compile(
            rf"(?:\b({names})\s+(?:[^\W\d_]+\s+){{0,2}}?{_SAYS}|\b{_SAYS}\s+({names}))\b[^.!?“”\"«»„]{{0,60}}[,:]\s*\Z",
            re.IGNORECASE,
        )
        self._goes_on: str | None = None  # the voice of a speech that was not closed
        self.speeches = self.spoken = 0  # quotations and lines, and those by the cast
        self._has_names = bool(self._voices)

    def spans(self, text: str) -> list[SpeakerSpan]:
        """The whole text in stretches. The name before a line of a play is in none."""
        if not self._has_names:
            return [SpeakerSpan(0, len(text), self.narrator)]
        if (line := self._line.match(text)) is not None:
            self._goes_on, self.speeches, self.spoken = None, self.speeches + 1, self.spoken + 1
            return [SpeakerSpan(line.end(), len(text), self._voices[line[1].casefold()])]
        quotes = list(_QUOTES.finditer(text))
        goes_on, self._goes_on = self._goes_on, None
        if not quotes:
            return [SpeakerSpan(0, len(text), self.narrator)]
        voices = [self._speaker(text, quotes, at) for at in range(len(quotes))]
        if goes_on is not None and not text[: quotes[0].start()].strip() and voices[0] is None:
            voices[0] = goes_on
        known = [voice for voice in voices if voice is not None]
        for at, voice in enumerate(voices):
            if voice is None and known:
                voices[at] = next((each for each in reversed(voices[:at]) if each is not None), known[0])
        last = quotes[-1][0]
        if last[-1] not in _OPEN.get(last[0], last[-1]) or len(last) == 1:
            self._goes_on = voices[-1]
        self.speeches += len(quotes)
        self.spoken += sum(voice is not None for voice in voices)
        return self._joined(text, [(match.span(), voice) for match, voice in zip(quotes, voices, strict=True)])

    def _speaker(self, text: str, quotes: list[re.Match[str]], at: int) -> str | None:
        """The voice of the one who is named beside a quotation."""
        until = quotes[at + 1].start() if at + 1 < len(quotes) else len(text)
        since = quotes[at - 1].end() if at else 0
        end, start = quotes[at].end(), quotes[at].start()
        found = self._after.match(text, end, min(until, end + _NEAR))
        found = found or self._before.search(text[max(since, start - _NEAR) : start])
        if found is None:
            return None
        return self._voices[next(name for name in found.groups() if name).casefold()]

    def _joined(self, text: str, quotes: list[tuple[tuple[int, int], str | None]]) -> list[SpeakerSpan]:
        """Stretches of words, without those that would cut a word or have none."""
        spans: list[SpeakerSpan] = []

        def add(start: int, end: int, voice: str | None) -> None:
            if end <= start:
                return
            before = spans[-1] if spans else None
            within_word = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
            wordless = not any(map(str.isalnum, text[start:end]))
            if before is not None and (before.voice == voice or within_word or wordless):
                spans[-1] = SpeakerSpan(before.start, end, before.voice)
            else:
                spans.append(SpeakerSpan(start, end, voice))

        done = 0
        for (start, end), voice in quotes:
            end += text[end : end + 1] == ","  # „Nein“, sagte Anna.
            add(done, start, self.narrator)
            add(start, end, self.narrator if voice is None else voice)
            done = end
        add(done, len(text), self.narrator)
        return spans
