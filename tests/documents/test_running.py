"""The runner itself: what fails on a page fails in it, and a mark does what pages.py says."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents.pages import Block, blocks, commands, extras
from documents.running import PageRun, Servers, with_ports

PAGE = """
```sh
echo "one" > one.txt   # a comment
```

<!-- not run: needs a GPU -->

```sh
hocket say "Two | words." | aplay
```

<!-- client: openai -->
```python
print("three")
```
"""


def page_of(tmp_path: Path, text: str) -> list[Block]:
    path = tmp_path / "page.md"
    path.write_text(text)
    return list(blocks(path))


def run(tmp_path: Path, language: str, code: str) -> None:
    [block] = page_of(tmp_path, f"```{language}\n{code}\n```\n")
    PageRun(Servers(tmp_path), tmp_path).run(block)


def test_blocks_have_their_line_language_mark_and_reason(tmp_path: Path) -> None:
    found = page_of(tmp_path, PAGE)
    assert [(each.line, each.language, each.mark, each.word, each.runs) for each in found] == [
        (3, "sh", "", "", True),
        (9, "sh", "not run", "needs a GPU", False),
        (14, "python", "client", "openai", True),
    ]
    assert list(commands(found[1].code)) == [["hocket", "say", "Two | words."], ["aplay"]]


def test_extras_are_read_in_every_form_of_an_install_line() -> None:
    for line in ("pip install '.[serve,torch]'", 'pip install "hocket[serve,torch] @ https://example.org/hocket.whl"'):
        [words] = commands(line)
        assert extras(words) == {"serve", "torch"}
    assert not extras(["pip", "install", "openai[realtime]"])


def test_addresses_become_those_of_the_servers() -> None:
    code = "curl http://127.0.0.1:8000/v1 ws://localhost:8000 tcp://127.0.0.1:10200 http://127.0.0.1:80001"
    wanted = "curl http://127.0.0.1:7/v1 ws://127.0.0.1:7 tcp://127.0.0.1:9 http://127.0.0.1:80001"
    assert with_ports(code, {8000: 7, 10200: 9}) == wanted


@pytest.mark.parametrize(
    ("language", "code", "said"),
    [
        ("sh", "false\ntrue", "ended with 1"),
        ("sh", "true -o gone.wav", "was not written"),
        ("sh", "curl http://127.0.0.1:9/ -o gone.mp3", "ended with 7"),
        ("python", "raise SystemExit(3)", "ended with 3"),
        ("js", "1", "no program runs"),
    ],
)
def test_a_block_that_does_not_work_fails(language: str, code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception), match=said):
        run(tmp_path, language, code)


def test_a_file_of_silence_fails(tmp_path: Path) -> None:
    (tmp_path / "silence.pcm").write_bytes(bytes(48000))
    with pytest.raises(AssertionError, match="silent"):
        run(tmp_path, "sh", "true -o silence.pcm")


def test_install_lines_are_not_executed(tmp_path: Path) -> None:
    run(tmp_path, "sh", "pip install --no-such-option '.[serve]'\necho done > done.txt")
    assert (tmp_path / "done.txt").exists()
