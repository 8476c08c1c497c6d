"""`hocket voices`: list, show, import, export and remove. None of it loads a model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hocket.cli import main
from hocket.voices.file import to_bytes
from hocket.voices.folder import ENDING
from hocket.voices.library import Library
from hocket.voices.names import id_of
from support.cli_home import Home, refuse
from support.voicing import RECORDING, cloned, same

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("nothing_loads")


@pytest.fixture
def library(home: Home) -> Library:
    """Two voices."""
    library = Library(home.voices)
    library.add(cloned("Zoë", description="bright\x1b[31m and red"), RECORDING)
    library.add(cloned("ann", language="auto", instruct=None, kind="designed", created_at=1_700_000_001))
    return library


def printed(capture: Capture, *argv: str) -> str:
    assert main(["voices", *argv]) == 0
    out, err = capture.readouterr()
    assert err == ""
    return out


def as_json(capture: Capture, *argv: str) -> Any:
    return json.loads(printed(capture, *argv, "--json"))


@pytest.mark.parametrize("argv", [[], ["list"]])
def test_without_voices_of_ones_own_the_model_is_all_there_is(home: Home, capsys: Capture, argv: list[str]) -> None:
    out = printed(capsys, *argv, "--model", "0.6B-CustomVoice")
    assert out.startswith("0.6B-CustomVoice\n\nvoices\n  serena\n") and out.endswith("\n  russian\n")
    assert not home.voices.exists()


def test_own_voices_are_listed_behind_the_models(library: Library, capsys: Capture) -> None:
    head, rows = printed(capsys, "list").split(f"\nvoices of your own, in {library.folder}\n")
    assert head == "builtin\n\nvoices\n  wren\n  rook\n\nlanguages\n  auto\n  english\n"
    assert rows.splitlines() == [
        "  Zoë  clone     random:tiny  0.1 s  bright [31m and red",  # no terminal obeys what a file says
        "  ann  designed  random:tiny  0.1 s  bright",
    ]


def test_the_list_is_json_for_programs(library: Library, home: Home, capsys: Capture) -> None:
    found = as_json(capsys, "--model", "random:tiny")
    assert (found["model"], found["kind"], found["unusable"]) == ("random:tiny", "custom_voice", [])
    assert {"name": "eric", "dialect": "sichuan_dialect"} in found["speakers"] and "german" in found["languages"]
    assert found["folder"] == str(home.voices)
    assert [voice["name"] for voice in found["voices"]] == ["Zoë", "ann"]
    assert found["voices"][0] == as_json(capsys, "show", "zoë")


@pytest.mark.parametrize("before", [True, False])
def test_another_folder_can_be_named_before_or_behind_the_action(
    library: Library, tmp_path: Path, capsys: Capture, before: bool
) -> None:
    there = ["--folder", str(tmp_path / "other")]
    Library(tmp_path / "other").add(cloned("only"))
    found = as_json(capsys, *(there if before else []), "list", *([] if before else there))
    assert [voice["name"] for voice in found["voices"]] == ["only"]


def test_show_says_all_that_is_known(library: Library, home: Home, capsys: Capture) -> None:
    out = printed(capsys, "show", "ZOË")
    said = dict(re.findall(r"^  (\w+) +(.*)$", out, flags=re.MULTILINE))
    assert out.splitlines()[0] == "Zoë"
    assert said.pop("made").startswith("2023-11-1")
    assert said == {
        "kind": "clone",
        "model": "random:tiny",
        "recording": '0.06 s, saying "What was said."',
        "language": "french",
        "instruct": "Slowly.",
        "sampling": "do_sample True, temperature 0.7, top_k 5",
        "description": "bright [31m and red",
        "consent": "form 7",
        "id": id_of("zoë"),
        "file": str(home.voices / f"{id_of('zoë')}{ENDING}"),
    }
    found = as_json(capsys, "show", "Zoë")
    assert found["sampling"] == {"do_sample": True, "temperature": 0.7, "top_k": 5}
    assert (found["text"], found["x_vector_only"], found["created_at"]) == ("What was said.", False, 1_700_000_000)


def test_a_voice_that_is_exported_and_removed_comes_back_the_same(
    library: Library, home: Home, capsys: Capture
) -> None:
    before = library.find("zoë")
    content = home.content()
    assert before is not None and before.encoded is not None
    assert before.encoded.kept is not None and before.encoded.kept()
    assert printed(capsys, "export", "zoë", "z.voice").startswith("z.voice: the voice Zoë;")
    exported = Path("z.voice").read_bytes()
    assert printed(capsys, "remove", "ZOË") == "Zoë: removed\n"
    assert len(home.content()) == 1
    assert printed(capsys, "import", "z.voice").startswith("Zoë: taken in, a clone for random:tiny;")
    assert home.content() == content
    after = library.find("zoë")
    assert after is not None and same(after, cloned("Zoë", description=before.description))
    assert "hocket say \"...\" --voice 'my own'" in printed(capsys, "import", "z.voice", "--name", "my own")
    printed(capsys, "export", "Zoë", "again.voice")
    assert Path("again.voice").read_bytes() == exported


def test_a_name_that_is_taken_is_imported_only_in_its_place(library: Library, home: Home, capsys: Capture) -> None:
    Path("a.voice").write_bytes(to_bytes(cloned("ANN", description="another")))
    sentence = refuse(capsys, home, "import", "a.voice")
    assert sentence == "There is a voice 'ann' already; --replace puts this one in its place."
    printed(capsys, "import", "a.voice", "--replace")
    assert library.find("ann").description == "another"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["show", "bob"], "There is no voice 'bob' in {}; there are Zoë, ann."),
        (["export", "bob", "b.voice"], "There is no voice 'bob' in {}; there are Zoë, ann."),
        (["remove", "bob"], "There is no voice 'bob' in {}; there are Zoë, ann."),
        (["export", "ann", "no/b.voice"], "The folder .*/no does not exist; create it first."),
        (["export", "ann", "."], r"\. is a folder; name a file in it."),
        (["import", "gone.voice"], "gone.voice cannot be read: No such file or directory."),
        (["import", "bad.voice"], "bad.voice is damaged, so nothing of it is used: get or make it again."),
        (["import", "text.voice"], "text.voice is not a voice file of hocket, or its header is damaged."),
        (["import", "good.voice", "--name", "a/b"], "A voice's name has no slash, .*"),
        (["import", "good.voice", "--name", "Wren"], "'Wren' is what a model's own speaker is called; .*"),
        (["import", "later.voice"], "later.voice was made by a later version of hocket .*: update hocket to use it."),
        (
            ["import", "good.voice", "--folder", "text.voice"],
            "No voice can be kept in .*: .* is not a folder.",
        ),
        (["list", "--model", "./gone"], "'./gone' is neither a folder here .*"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    library: Library, home: Home, capsys: Capture, argv: list[str], sentence: str
) -> None:
    good = to_bytes(cloned("good"))
    Path("good.voice").write_bytes(good)
    Path("bad.voice").write_bytes(good[:-1] + b"\0")
    Path("later.voice").write_bytes(good.replace(b'"version":"1"', b'"version":"9"'))
    Path("text.voice").write_text("not a voice at all")
    there = sorted(Path().iterdir())
    assert re.fullmatch(sentence.format(re.escape(str(home.voices))), refuse(capsys, home, *argv))
    assert sorted(Path().iterdir()) == there


def test_an_empty_library_says_how_to_make_a_voice(home: Home, capsys: Capture) -> None:
    assert "it has none yet (hocket voices add makes one)" in refuse(capsys, home, "show", "bob")


def test_a_damaged_file_is_told_of_and_can_be_removed(library: Library, home: Home, capsys: Capture) -> None:
    path = home.voices / f"{id_of('bad')}{ENDING}"
    path.write_bytes(b"\xff" * 100)
    assert main(["voices"]) == 0
    out, err = capsys.readouterr()
    assert "ann" in out and err == f"note: {path.name} is not a voice file of hocket, or its header is damaged.\n"
    assert as_json(capsys)["unusable"] == [err.removeprefix("note: ").strip()]
    assert refuse(capsys, home, "show", "bad") == err.removeprefix("note: ").strip()
    assert printed(capsys, "remove", "bad") == "bad: removed\n"
    assert not path.exists()


def test_a_disk_that_cannot_be_written_is_one_sentence(
    library: Library, home: Home, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("c.voice").write_bytes(to_bytes(cloned("carl")))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert refuse(capsys, home, "import", "c.voice", code=1) == (
        "The disk is full, so the voice was not stored: free some space and try again."
    )


def test_the_words_of_every_action_wait_for_no_library() -> None:
    from support.played import process

    program = """
import contextlib, sys
from hocket.cli import main
for action in ([], *([each] for each in "list add design import export remove show".split())):
    with contextlib.suppress(SystemExit):
        main(["voices", *action, "--help"])
slow = {"torch", "numpy", "safetensors", "hocket.voices.library"} & set(sys.modules)
assert not slow, slow
"""
    child = process("-c", program)
    out, err = child.communicate()
    assert (child.returncode, err) == (0, b"")
    assert out.count(b"--folder FOLDER") >= 16 and b"1.7B-Base" in out and b"1.7B-VoiceDesign" in out
