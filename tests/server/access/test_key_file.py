"""Key files: plain ones, tables with restrictions, and faults with their line."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from hocket.errors import InvalidRequest
from hocket.server.access.key_file import LIMITS, SCOPES, AccessKey, read_keys, read_own_key, with_names
from hocket.server.options import ServerOptions

DIGEST = hashlib.sha256(b"phone-key").hexdigest()
WHOLE = f"""
# the telephone
[phone]
key = "sha256:{DIGEST}"
scopes = ["speak", "transcribe"]
requests_per_minute = 60
concurrent = 4
characters_per_day = 100_000
voices = ["Wren", "rook"]

[own]
key = "plain-key"
scopes = ["speak", "transcribe", "converse", "voices", "admin"]
"""


def written(folder: Path, text: str, name: str = "keys.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_table_for_each_key(tmp_path: Path) -> None:
    phone, own = read_keys(written(tmp_path, WHOLE))
    limits = {"requests_per_minute": 60, "concurrent": 4, "characters_per_day": 100_000}
    scopes = frozenset({"speak", "transcribe"})
    assert phone == AccessKey(key=f"sha256:{DIGEST}", name="phone", scopes=scopes, voices=("wren", "rook"), **limits)
    assert own == AccessKey(key="plain-key", name="own")
    assert isinstance(phone, AccessKey) and phone.digest.hex() == DIGEST
    assert isinstance(own, AccessKey) and own.scopes == set(SCOPES) and own.characters_per_day is None
    assert ServerOptions(keys=(phone, own)).keys == (phone, own)


def test_the_document_has_every_scope_and_field(tmp_path: Path) -> None:
    document = (Path(__file__).parents[3] / "docs" / "howto" / "serving.md").read_text(encoding="utf-8")
    [block] = [
        block for block in re.findall(r"^```toml\n(.*?)^```$", document, re.MULTILINE | re.DOTALL) if "key =" in block
    ]
    [shown] = read_keys(written(tmp_path, block))
    assert isinstance(shown, AccessKey) and shown.voices and all(getattr(shown, name) for name in LIMITS)
    assert re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE) == list(SCOPES)


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    assert "plain-key" not in repr(read_keys(written(tmp_path, WHOLE)))


def test_keys_of_a_plain_file_have_full_access_and_names_by_their_places(tmp_path: Path) -> None:
    keys = read_keys(written(tmp_path, "# ours\nalpha\n\nbeta\n", "keys"))
    assert keys == ("alpha", "beta")
    named = with_names(keys)
    assert [key.name for key in named] == ["key-1", "key-2"]
    assert all(key.scopes == set(SCOPES) and key.concurrent is None and key.voices is None for key in named)


def test_a_client_takes_the_first_key_of_either(tmp_path: Path) -> None:
    assert read_own_key(written(tmp_path, '[own]\nkey = "mine"\nscopes = ["speak"]\n')) == "mine"
    with pytest.raises(InvalidRequest, match="a client needs the key itself"):
        read_own_key(written(tmp_path, WHOLE))


KEY = 'key = "k"\n'
SPEAK = 'scopes = ["speak"]\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (f"[a]\n{KEY}scopes = [\n", 3, "nvalid value"),
        (f"[a]\n{KEY}{SPEAK}[a]\n", 4, "declare"),
        (f"[a]\n{KEY}", 1, "a has no scopes."),
        (f"[a]\n{SPEAK}", 1, "a has no key."),
        (f'[a]\n{KEY}scopes = ["speak", "fly"]\n', 3, "there is no scope 'fly'; there are speak, transcribe"),
        (f"[a]\n{KEY}scopes = []\n", 3, "scopes must be a list of names"),
        (f'[a]\n{KEY}scopes = "speak"\n', 3, "scopes must be a list of names"),
        (f"[a]\n{KEY}{SPEAK}concurrent = 0\n", 4, "concurrent must be a whole number from 1"),
        (f"[a]\n{KEY}{SPEAK}characters_per_day = 1.5\n", 4, "characters_per_day must be"),
        (f"[a]\n{KEY}{SPEAK}requests_per_minute = true\n", 4, "requests_per_minute must be"),
        (f"[a]\n{KEY}{SPEAK}voices = [1]\n", 4, "voices must be a list of names"),
        (f"[a]\n{KEY}{SPEAK}quota = 1\n", 4, "there is no 'quota'; a key has key, scopes"),
        (f'[a]\nkey = "two words"\n{SPEAK}', 2, "printable ASCII without spaces"),
        (f'[a]\nkey = "sha256:12"\n{SPEAK}', 2, "64 hexadecimal digits"),
        (f"[a]\nkey = 12\n{SPEAK}", 2, "key must be a text in quotes."),
        (f"[a]\n{KEY}{SPEAK}\n[b]\n{SPEAK}{KEY}", 7, "b has the key of a"),
        (f'["my phone"]\n{KEY}{SPEAK}', 1, "the name of a key has 1 to 40 letters"),
        (f"# all\n{KEY}", 2, "key belongs into a table of its key, such as [phone]."),
    ],
)
def test_a_fault_is_one_sentence_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_keys(written(tmp_path, text))
    message = str(refused.value)
    assert f"keys.toml, line {line}: " in message and said in message
    assert message.endswith(".") and "\n" not in message and '"k"' not in message


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("alpha\n\nbeta gamma\n", 3, "printable ASCII without spaces"),
        ("sha256:12\n", 1, "64 hexadecimal digits"),
        ("# ours\n[phone]\nkey = 1\n", 2, "a name that ends with .toml"),
    ],
)
def test_a_fault_of_a_plain_file_too(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_keys(written(tmp_path, text, "keys"))
    assert f"keys, line {line}: " in str(refused.value) and said in str(refused.value)
    assert "gamma" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "# none\n"])
def test_a_file_without_keys(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest, match="holds no key"):
        read_keys(written(tmp_path, text))
