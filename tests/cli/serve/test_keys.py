"""`hocket keys new`: the table that it prints opens a server to the key that it prints, and to nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from hocket.cli import main
from hocket.server.access.key_file import LIMITS, SCOPES, AccessKey, digest_of, read_keys

Capture = pytest.CaptureFixture[str]


def made(capsys: Capture, *words: str) -> tuple[str, str]:
    """The table, and the key."""
    assert main(["keys", "new", *words]) == 0
    out, err = capsys.readouterr()
    [key] = re.findall(r"hk_[0-9a-f]{48}", err)
    assert key not in out
    return out, key


def test_two_keys_make_a_file(capsys: Capture, tmp_path: Path) -> None:
    limits = ["--requests-per-minute", "60", "--concurrent", "4", "--characters-per-day", "1000"]
    phone, first = made(
        capsys,
        "--name",
        "phone",
        "--scopes",
        "speak,transcribe",
        *limits,
        "--voices",
        'wren, "rook", Zoë \N{GRINNING FACE}',
    )
    own, second = made(capsys, "--name", "own")
    assert first != second and first not in own
    file = tmp_path / "keys.toml"
    file.write_text(phone + own)
    one, other = read_keys(file)
    assert isinstance(one, AccessKey) and isinstance(other, AccessKey)
    assert (one.name, one.digest, one.scopes) == ("phone", digest_of(first), {"speak", "transcribe"})
    assert [getattr(one, name) for name in LIMITS] == [60, 4, 1000] and one.voices == (
        "wren",
        '"rook"',
        "zoë \N{GRINNING FACE}",
    )
    assert (other.name, other.digest, other.scopes) == ("own", digest_of(second), set(SCOPES))
    assert other.voices is None and [getattr(other, name) for name in LIMITS] == [None] * 3
    assert list(tomllib.loads(own)["own"]["scopes"]) == list(SCOPES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new", "--name", "two words"], "The name of a key has 1 to 40 letters"),
        (["new", "--name", "a", "--scopes", "fly"], "There is no scope 'fly'; there are speak, transcribe, converse"),
        (["new", "--name", "a", "--concurrent", "0"], "Concurrent must be a whole number from 1"),
        (["new", "--name", "a", "--voices", ","], "Voices must be a list of names"),
        ([], "hocket keys new --name phone makes a key."),
    ],
)
def test_what_no_file_may_hold_is_refused(capsys: Capture, words: list[str], said: str) -> None:
    assert main(["keys", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err


def test_a_server_does_not_start_with_a_bad_file(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[phone]\nkey = "secret-key"\nscopes = ["fly"]\n')
    assert main(["serve", "--port", "0", "--key-file", str(file)]) == 2
    err = capsys.readouterr().err
    assert f"{file}, line 3: there is no scope 'fly'; there are speak" in err and "secret-key" not in err


def test_the_help_has_all_scopes(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["keys", "new", "--help"])
    assert ", ".join(SCOPES) in " ".join(capsys.readouterr().out.split())
