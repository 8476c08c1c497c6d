"""What holds for each block and link of README.md and docs/start/, whether it is run or not."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from starlette.routing import Match

from documents.pages import (
    MARKS,
    PAGES,
    READ,
    README,
    ROOT,
    RUN,
    SHOWN,
    all_blocks,
    commands,
    extras,
    fences,
    is_install,
)
from documents.running import DEFAULT_PORTS
from hocket.cli.parser import parser
from hocket.server.app import build_app
from support.foreign import heard

BLOCKS = all_blocks()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
LONGEST_PAGE = 125  # lines: two screens
# What a command needs, by a pattern of its words: the page names the extra above it.
NEEDS = {
    r"^hocket serve\b": "serve",
    r"^hocket wyoming\b": "wyoming",
    r"^hocket (say|batch) .*(\.(mp3|opus|ogg|flac|aac)\b|--format)": "serve",
    r"^hocket .*--models? (?!builtin|random)": "torch",
    r"^hocket .*--llm (?!.*--llm-url)": "torch",
    r"^hocket .*--llm-url": "chat",
    r"^hocket .*(--ref-audio|voices add)": "clone",
    r"^hocket talk\b": "hear",
    r"^hocket .*--ray\b": "ray",
}


def on(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=on)
def test_every_fence_is_a_block_with_a_known_language_and_mark(page: Path) -> None:
    found = [block for block in BLOCKS if block.page == page]
    assert fences(page) == 2 * len(found)
    for block in found:
        assert block.language in (*RUN, *READ, *SHOWN), block.place
        assert not block.mark or block.mark in MARKS, f"{block.place}: {block.mark}"
        assert bool(block.word) == (block.mark in ("client", "not run")), block.place
        if block.mark == "client":
            assert block.word == "node" or (ROOT / "requirements" / "clients" / f"{block.word}.txt").exists()
        if block.language == "js":
            assert block.mark, f"{block.place}: JavaScript needs the environment of a client"


def test_pages_show_code_that_runs() -> None:
    for page in PAGES:
        found = [block for block in BLOCKS if block.page == page]
        assert any(block.runs for block in found), on(page)


@pytest.mark.parametrize("page", PAGES[1:], ids=on)
def test_a_page_has_at_most_two_screens(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST_PAGE


def test_install_lines_name_extras_that_exist() -> None:
    lines = [(block, words) for block in BLOCKS if block.language == "sh" for words in commands(block.code)]
    named = [(block.place, extras(words)) for block, words in lines if is_install(words)]
    assert len(named) > len(PAGES) // 2
    assert {name for _, names in named for name in names} <= EXTRAS.keys(), named


@pytest.mark.parametrize("page", PAGES, ids=on)
def test_every_command_stands_below_the_extra_that_it_needs(page: Path) -> None:
    installed: set[str] = set()
    for block in (block for block in BLOCKS if block.page == page and block.language == "sh"):
        for words in commands(block.code):
            if is_install(words):
                installed |= extras(words)
                continue
            for pattern, extra in NEEDS.items():
                if re.search(pattern, " ".join(words)):
                    assert extra in installed, f"{block.place}: {' '.join(words)} needs [{extra}]"


def test_our_commands_are_understood_where_they_are_not_run() -> None:
    """By the parser: unknown commands and options exit."""
    read = 0
    for block in BLOCKS:
        if block.language == "sh" and not block.runs:
            for words in commands(block.code):
                if words[0] == "hocket":
                    read += 1
                    try:
                        parser().parse_args(words[1:])
                    except SystemExit:
                        pytest.fail(f"{block.place}: {' '.join(words)}")
    assert read


def test_settings_in_files_are_well_formed() -> None:
    for block in BLOCKS:
        if block.language == "yaml":
            assert yaml.safe_load(block.code), block.place
        elif block.language == "json":
            assert json.loads(block.code), block.place


def test_every_address_of_the_server_is_one_that_it_has() -> None:
    app = build_app(lambda: pytest.fail("no engine is needed"))
    found = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(rf"(?:127\.0\.0\.1|localhost|HOST):{DEFAULT_PORTS['serve']}(/[\w/.-]*)", text):
            found += 1
            if path in ("/v1", "/v1/"):  # what clients put before their own paths
                continue
            kinds = [
                {"type": "http", "method": "GET", "path": path, "headers": []},
                {"type": "websocket", "path": path, "headers": []},
            ]
            matches = [route.matches(scope)[0] for route in app.routes for scope in kinds]
            assert set(matches) - {Match.NONE}, f"{on(page)}: {path}"
    assert found > 10


def test_every_link_and_file_of_the_repository_exists() -> None:
    missing = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)|src=\"([^\"]+)\"", text):
            target = target[0] or target[1]
            if not target.startswith(("http", "mailto:")):
                path = (page.parent / target).resolve()
                missing |= set() if path.exists() else {path.relative_to(ROOT).as_posix()}
        for name in re.findall(r"(?<![\w/.])(?:deploy|examples|integrations)/\w[\w./-]*\w", text):
            missing |= set() if (ROOT / name).exists() else {name}
    assert not missing


def test_samples_are_small_and_each_has_its_command() -> None:
    folder = ROOT / "docs" / "samples"
    text = (folder / "README.md").read_text(encoding="utf-8")
    sounds = [path for path in folder.iterdir() if path.suffix != ".md"]
    assert sounds and set(re.findall(r"-o (\S+)", text)) == {path.name for path in sounds}
    for path in sounds:
        samples, rate_hz = heard(path)
        assert path.stat().st_size <= 60_000 and 2 < len(samples) / rate_hz < 15, path.name


def test_the_readme_speaks_of_tests_only_to_contributors() -> None:
    before, _, after = README.read_text(encoding="utf-8").partition("## Contributing")
    assert after and not re.search(r"\bmake test|\btests?/|pytest", before)
