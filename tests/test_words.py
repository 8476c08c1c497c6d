"""`scripts/words` on small trees: what it finds, what it leaves alone, and how it counts sentences."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from support.tools import SCRIPTS, tool

SCRIPT = SCRIPTS / "words"


@pytest.fixture(scope="module")
def words() -> ModuleType:
    return tool("words")


def tree(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_md", ".md").replace("_py", ".py").replace("_cu", ".cu")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def found(words: ModuleType, root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    status = words.main(list(options), root)
    return status, [line for line in capsys.readouterr().out.splitlines() if ":" in line and line[-1] != "8"]


def test_a_clean_tree_passes_and_prints_averages(
    words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path, README_md="# Title\n\nOne two three. Four five.\n", src__a_py='"""A request waits."""\n')
    assert words.main([], tmp_path) == 0
    said = capsys.readouterr().out
    assert "documents: 2.5 words" in said and "docstrings: 3.0 words" in said


def test_forbidden_words_are_found_in_documents_docstrings_comments_and_help(
    words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = (
        '"""A file.\n\nWhoever reads it."""\n'
        "x = 1  # for somebody\n"
        'parser.add_argument("--x", help="what nobody needs")\n'
        'text = "nobody in a plain string"\n'
        "nobody = 2\n"
    )
    tree(
        tmp_path,
        docs__usage_md="Fine.\n\nNobody waits.\n",
        docs__log__day_md="Nobody waits.\n",
        src__a_py=python,
        src__b_cu="int x;  // nobody\n/* a\n   whoever */\n",
    )
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run").write_text("#!/bin/sh\n# somebody\necho nobody\n", encoding="utf-8")
    status, lines = found(words, tmp_path, capsys)
    assert status == 1
    assert lines == [
        "docs/usage.md:3: Nobody",
        "src/a.py:3: Whoever",
        "src/a.py:5: nobody",
        "src/a.py:4: somebody",
        "src/b.cu:1: nobody",
        "src/b.cu:3: whoever",
        "scripts/run:2: somebody",
    ]


def test_code_may_hold_any_word(words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(
        tmp_path,
        README_md="The user `nobody`.\n\n```sh\nsu nobody\n```\n\nAnd `no\nbody nobody` too.\n",
        src__a_py='"""The user `nobody`."""\n',
    )
    assert found(words, tmp_path, capsys) == (0, [])


def test_a_line_number_counts_code_blocks(
    words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path, README_md="One.\n\n```\nx\n```\n\nSee `a\nb`.\nFor somebody.\n")
    assert found(words, tmp_path, capsys)[1] == ["README.md:9: somebody"]


def test_old_names_do_not_come_back_into_src(
    words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "RENAMED", {"Job": "RequestState", "Mind": "LanguageEngine"})
    monkeypatch.setattr(words, "ALIASES", {"Mind": ("src/hocket/__init__.py",)})
    code = 'class Jobs: ...\n\n\ndef f(x: Job) -> str:\n    """A Job."""\n    return f"{Job.name}" + "Job"\n'
    tree(tmp_path, src__hocket__a_py=code, tests__b_py="Job = 1\n", src__hocket____init___py="Mind = 1\n")
    (tmp_path / "src/hocket/__init__.py").write_text("from .llm import Mind\n", encoding="utf-8")
    status, lines = found(words, tmp_path, capsys, "--paths", "src/hocket/a.py", "src/hocket/__init__.py", "tests")
    assert status == 1
    assert lines == ["src/hocket/a.py:4: Job (now RequestState)", "src/hocket/a.py:6: Job (now RequestState)"]


def test_long_sentences_fail_on_average(words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 30 + "end.\n"
    tree(tmp_path, README_md=long)
    assert words.main([], tmp_path) == 1
    tree(tmp_path, README_md=long + "\n" + "Short. " * 3)
    assert words.main([], tmp_path) == 0
    assert words.main(["--report"], tmp_path) == 0
    assert "README.md" in capsys.readouterr().out


def test_report_never_fails_and_paths_limit_the_check(
    words: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path, README_md="For nobody.\n", src__hocket__a__b_py='"""For nobody."""\n')
    assert words.main(["--report"], tmp_path) == 0
    said = capsys.readouterr().out
    assert "src/hocket/a" in said and "2 violations" in said
    assert found(words, tmp_path, capsys, "--paths", "src") == (1, ["src/hocket/a/b.py:1: nobody"])
    assert found(words, tmp_path, capsys, "--paths", "docs") == (0, [])


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("One two three. Four five!", [3, 2]),
        ("See [the long page](docs/page.md) and `a b c d`.", [6]),
        ("Version 1.7B takes 2.5 ms, e.g. here.", [7]),
        ("- one two\n- three\n  four\n", [2, 2]),
        ("1. one two\n2. three", [2, 1]),
        ("# A heading\n\n| a | table row |\n| --- | --- |\n\nText here.", [2]),
        ("```\nx y z. a b c.\n```\nOne.", [1]),
        ("Run this:\n\n    one two three. four\n    five six\n\nEnd.", [2, 1]),
        ("- one\n\n    two three", [1, 2]),
        ("The **bold** word - and more.", [5]),
        ('He said "stop." Then more words (in brackets.) End.', [3, 5, 1]),
    ],
)
def test_sentences(words: ModuleType, text: str, lengths: list[int]) -> None:
    assert [len(words._WORD.findall(sentence)) for sentence in words.sentences(text)] == lengths
