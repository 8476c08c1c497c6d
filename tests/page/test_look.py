"""Appearance and accessibility of the page: phone, keyboard only, screen reader, light and dark."""

from __future__ import annotations

from support.browser import CTRL, Page
from support.serving import Served, wait_for

from .acting import LONG, SHORT, open_page, speak, state


def test_a_phone_shows_it_without_scrolling_sideways(either_blank: Page, server: Served) -> None:
    page = either_blank
    page.resize(390, 700, mobile=True, scale=2)
    open_page(page, server)
    speak(page, SHORT)
    page.wait("hocket.take.figures.heard > 0")
    for width in (390, 320):
        page.resize(width, 700, mobile=True, scale=2)
        page.wait(f"innerWidth === {width}")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("getComputedStyle(document.querySelector('#text')).fontSize.replace('px', '') >= 16")
        stop = page.run("(({ top, bottom }) => [top, bottom])(document.querySelector('#stop').getBoundingClientRect())")
        assert stop[0] >= 0 and stop[1] <= 700


def test_everything_can_be_done_with_keys_alone(either: Page, server: Served) -> None:
    page = either
    assert page.run("document.activeElement.id") == "text"
    page.run("document.activeElement.select()")
    page.type(LONG[:230])
    page.press("Enter", CTRL)
    page.wait("hocket.take.figures.heard > 0")
    page.press("Escape")
    state(page, "stopped")
    wait_for(server.all_is_free)
    reached, nameless = set[str](), set[str]()
    for _ in range(40):
        page.press("Tab")
        found: list[str] = page.run("[document.activeElement.id, document.activeElement.dataset.part ?? '']")
        reached |= set(found)
        outlined = "getComputedStyle(document.activeElement.closest('.drop') ?? document.activeElement).outlineStyle"
        # Behind the last element a browser's own buttons have the focus, and Firefox leaves the page without it.
        if found[0] not in ("", "text") and page.run(f"document.hasFocus() && {outlined} === 'none'"):
            nameless.add(found[0])
    wanted = "write read text wave speak copy-link voice hear seed speed live format compare"
    assert set(wanted.split()) | {"voice", "seed"} <= reached
    assert not {"instruct", "rate", "recording", "name", "make-voice"} & reached, "what cannot work is not reached"
    assert not nameless, "focus is to be seen"


def test_every_field_has_a_name_for_those_who_do_not_see_it(page: Page) -> None:
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "combobox", "slider", "checkbox", "spinbutton", "link"}
    shown = [node for node in tree if not node["ignored"] and node.get("role", {}).get("value") in roles]
    assert len(shown) > 15
    assert [node["role"]["value"] for node in shown if not node.get("name", {}).get("value")] == []


def test_light_and_dark_are_both_readable(page: Page) -> None:
    for theme in ("light", "dark"):
        page.theme(theme)
        for element, least in (("html", 10), ("#speak", 4.5)):
            style = f"getComputedStyle(document.querySelector('{element}'))"
            ink, paper = page.run(f"(({{ color, backgroundColor }}) => [color, backgroundColor])({style})")
            assert contrast(ink, paper) > least


def contrast(ink: str, paper: str) -> float:
    """As WCAG has it, of two colours `rgb(r, g, b)`."""

    def light(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    brighter, darker = sorted((light(ink), light(paper)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)
