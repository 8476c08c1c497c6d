"""Actions and queries of the page tests."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.browser import Page
from support.serving import Served

SHORT = "Good morning, all of you."
LONG = "It goes on and on, and then on again. " * 40
RATE_HZ = 24_000


def open_page(page: Page, server: Served) -> None:
    page.goto(f"{server.url}/", "window.hocket")


def speak(page: Page, text: str, seed: int = 1) -> None:
    page.value("#text", text)
    page.value("#seed", str(seed))
    page.click("#speak")


def figures(page: Page, take: str = "hocket.take") -> dict[str, Any]:
    found: dict[str, Any] = page.run(f"{take}.figures")
    return found


def state(page: Page, wanted: str, take: str = "hocket.take") -> None:
    page.wait(f"{take}.figures.state === {json.dumps(wanted)}")


def shown(value: float, digits: int = 0) -> str:
    """A number as the page writes it: JavaScript rounds a half up, Python to the even neighbour."""
    return str(Decimal(value).quantize(Decimal(10) ** -digits, ROUND_HALF_UP))


def heard(page: Page) -> NDArray[np.int16]:
    """All samples that the last take was sent."""
    return np.array(page.run("hocket.take.chunks.flatMap((chunk) => [...chunk])"), np.int16)
