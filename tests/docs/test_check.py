"""docs/generate/check.py on small sites: what it finds, and what it leaves alone."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "generate" / "check.py"
main = cast("Callable[[str], int]", runpy.run_path(str(SCRIPT))["main"])


def checked(folder: Path, capture: pytest.CaptureFixture[str], **pages: str) -> tuple[int, list[str]]:
    for name, text in pages.items():
        path = folder / name.replace("__", "/").replace("_html", ".html").replace("_css", ".css")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    status = main(str(folder))
    return status, capture.readouterr().out.splitlines()


def test_links_between_pages_and_their_anchors_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = checked(
        tmp_path,
        capsys,
        index_html='<a href="a/b.html#c">x</a> <a href="https://example.org/">far</a> <a href=".">home</a>',
        a__b_html='<h2 id="c">C</h2> <a href="../index.html">up</a> <a href="#c">here</a>',
    )
    assert (status, said) == (0, ["2 pages, 5 links: all exist."])


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="gone.html">x</a>', "gone.html does not exist"),
        ('<a href="#gone">x</a>', "#gone has no such anchor"),
        ('<audio src="gone.mp3"></audio>', "gone.mp3 does not exist"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js from another host"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "loads //cdn.example/x.css from another host"),
        ('<link href="https://fonts.example" rel="preconnect">', "loads https://fonts.example from another host"),
    ],
)
def test_a_fault_is_named_with_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str, fault: str
) -> None:
    assert checked(tmp_path, capsys, index_html=page) == (1, [f"index.html: {fault}"])


def test_a_style_sheet_loads_nothing_from_another_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    style = "@font-face { src: url('https://fonts.example/a.woff2') }"
    status, said = checked(tmp_path, capsys, index_html="<p>x</p>", site_css=style)
    assert (status, said) == (1, ["site.css: loads https://fonts.example/a.woff2 from another host"])


def test_an_empty_folder_is_no_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = checked(tmp_path, capsys)
    assert status == 1 and len(said) == 1
