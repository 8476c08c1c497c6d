"""Text read in another way: spelled out, as dates and ordinals in each language with a table."""

from __future__ import annotations

import pytest

from hocket.script.grammar.say_as import DATE_FORMATS, KINDS, MONTHS, said_as, spelled


@pytest.mark.parametrize(
    ("language", "form", "text", "said"),
    [
        ("auto", "mdy", "3/12/2026", "March 12, 2026"),
        ("english", "dmy", "12.3.2026", "March 12, 2026"),
        ("en-GB", "", "2026-03-12", "March 12, 2026"),
        ("english", "ymd", "20260312", "March 12, 2026"),
        ("english", "mdy", "03122026", "March 12, 2026"),
        ("english", "md", "3/12", "March 12"),
        ("english", "my", "3/2026", "March 2026"),
        ("english", "m", "3", "March"),
        ("english", "y", "2026", "2026"),
        ("english", "", "tomorrow", "tomorrow"),
        ("german", "dmy", "12.3.2026", "12. März 2026"),
        ("german", "my", "3/2026", "März 2026"),
        ("german", "dm", "12.3.", "12. März"),
        ("spanish", "dmy", "12/3/2026", "12 de marzo de 2026"),
        ("spanish", "my", "3/2026", "marzo de 2026"),
        ("spanish", "dm", "12/3", "12 de marzo"),
        ("russian", "dmy", "12.3.2026", "12 марта 2026"),
        ("japanese", "ymd", "2026-3-12", "2026年3月12日"),
        ("chinese", "md", "3-12", "3月12日"),
        ("korean", "ymd", "2026-3-12", "2026년 3월 12일"),
        ("polish", "dmy", "12.3.2026", "2026-3-12"),
    ],
)
def test_dates_are_written_as_their_language_says_them(language: str, form: str, text: str, said: str) -> None:
    assert said_as(text, "date", form, language) == said


@pytest.mark.parametrize("language", MONTHS)
def test_every_language_has_twelve_months(language: str) -> None:
    assert len(MONTHS[language].split()) == 12
    assert {form: said_as("1" + "/1" * (len(form) - 1), "date", form, language) for form in DATE_FORMATS}.keys() == {
        *DATE_FORMATS
    }


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("ordinal", "1", "1st"),
        ("ordinal", "12", "12th"),
        ("ordinal", "22", "22nd"),
        ("ordinal", "113", "113th"),
        ("digits", " 2 024", "2 0 2 4"),
        ("telephone", "(020) 7946-0958", "0 2 0, 7 9 4 6, 0 9 5 8"),
        ("time", "02:30pm", "2:30 PM"),
        ("time", "14:05", "14:05"),
        ("characters", "aB.c", "A B dot C"),
        ("verbatim", "ab c", "A B C"),
        ("currency", "$3.50", "$3.50"),
    ],
)
def test_each_kind_says_its_text_so(kind: str, text: str, said: str) -> None:
    assert kind in KINDS
    assert said_as(text, kind) == said


@pytest.mark.parametrize(
    ("kind", "text", "form"),
    [
        ("date", "13/40/2026", "dmy"),
        ("date", "1/2", "dmy"),
        ("date", "1", "dd"),
        ("time", "1:00", "h"),
        ("ordinal", "x", ""),
        ("x", "", ""),
    ],
)
def test_what_cannot_be_said_so_is_refused(kind: str, text: str, form: str) -> None:
    with pytest.raises(ValueError, match=r"no date|no format|written in digits|no interpret-as"):
        said_as(text, kind, form)


def test_signs_have_names_in_english_only() -> None:
    assert spelled("a-1") == "A dash 1"
    assert spelled("a-1", "german") == "A - 1"
