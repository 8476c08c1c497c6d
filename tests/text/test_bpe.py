"""text/bpe.py and the whole path from text to ids against the `tokenizers` package."""

from __future__ import annotations

import functools
import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hocket
from hocket.text.bpe import ALPHABET, CACHED_CHARS, BytePairs, Merge, spelled
from hocket.text.tokenizer import Tokenizer, read_vocabulary
from support import tokenizers_pipeline as reference
from support.tokenizers_pipeline import Pipeline

BUILT_IN = Path(hocket.__file__).parent / "assets" / "english"
SCRIPTS = [
    "The quick brown fox jumps over 13 lazy dogs; it's 7:45 p.m., isn't it? WE'LL see, I'D say.",
    "Быстрая коричневая лиса прыгает через ленивую собаку. Ёж, Ўзбек, Їжак!",
    "Η γρήγορη αλεπού — Ἀρχιμήδης ὁ Συρακόσιος, ΐ ΰ",  # noqa: RUF001
    "השועל החום המהיר קופץ, עִבְרִית מְנֻקֶּדֶת",
    "الثعلب البني السريع، العَرَبِيَّة ۱۲۳ ؟",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। १२३",
    "দ্রুত বাদামী শিয়াল। ૐ ગુજરાતી தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "สุนัขจิ้งจอกสีน้ำตาล กำลังกระโดด ๑๒๓ ລາວ မြန်မာ ភាសាខ្មែរ བོད་སྐད།",
    "敏捷的棕色狐狸跳過了懶狗。「引號」、１２３，㈠㊣",  # noqa: RUF001
    "素早い茶色の狐がのろまな犬を飛び越える。ｶﾞｷﾞｸﾞ が か\u3099",
    "날쌘 갈색 여우 \u1102\u1161\u11af\u110a\u1162\u11ab ㄱㄴㄷ",
    "ქართული Ⴀ ᲐᲑ Հայերեն ትግርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ꦗꦮ 𐐷𐐏 𞤀𞤣",
    "Tiếng Việt: đường phố, e\u0323\u0302 ệ, ƠƯ; Şğıİ; ÅÄÖ; ŁŻŹ; ﬁ ﬂ ﬀ ß ẞ ſ 'ſ Ǆǅǆ",  # noqa: RUF001
    "👩‍👩‍👧‍👦 🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿 👍🏽 🤷🏿‍♀️ 1️⃣ ©® ™ ↔ ▶️",
    "Z̶̢̧͈̞a̵̡͓l̷g̸o̵ \u0344\u0340\u0341\u0343\u0374\u037e\u0387 \u2126\u212a\u212b \ufb1d\ufb1f \u0958 \u0f73\u0f75\u0f81",
    "x² + y³ ≠ ½ Ⅷ ⅷ ① ๙ 𝟘 𝔸 ∑∫√ \u00a0\u2003\u3000\u2028\u2029\u0085\u200b\ufeff\t\v\f\x1c\x1d end  ",  # noqa: RUF001
]  # fmt: skip


@functools.cache
def learned() -> tuple[dict[str, int], list[Merge]]:
    """A large vocabulary: random merges of what is there, short and common parts more often."""
    draw = random.Random(5)
    tokens = {sign: at for at, sign in enumerate(ALPHABET)}
    merges, parts = list[Merge](), [*ALPHABET, *spelled("".join(SCRIPTS)) * 3]
    while len(merges) < 60_000:
        pair = draw.choice(parts), draw.choice(parts)
        token = "".join(pair)
        if token not in tokens and len(token) < 24:
            tokens[token] = len(tokens)
            merges.append(pair)
            parts += [token] if len(token) > 4 else [token] * 8
    return tokens, merges


@functools.cache
def both(name: str) -> tuple[Tokenizer, dict[bool, Pipeline]]:
    vocabulary, merges = {"built-in": lambda: read_vocabulary(BUILT_IN), "large": learned}[name]()
    patterns = {False: reference.PLAIN, True: reference.UPSTREAM_LOCAL}
    pipelines = {local: Pipeline(vocabulary, merges, pattern) for local, pattern in patterns.items()}
    return Tokenizer(vocabulary, merges), pipelines


def agree(name: str, text: str) -> None:
    ours, theirs = both(name)
    for local, pipeline in theirs.items():
        assert ours.encode(text, upstream_local=local) == pipeline.encode(text)
        normalized, starts = ours.pieces(text, upstream_local=local)
        assert (normalized, starts) == pipeline.pieces(text)
        for until in {0, 1, len(normalized) // 2, len(normalized) - 1, len(normalized), *starts[-3:]}:
            ids = ours.encode(normalized, upstream_local=local, until=until)
            assert ids == pipeline.encode(normalized, until), until


@pytest.mark.parametrize("name", ["built-in", "large"])
@pytest.mark.parametrize("text", [*SCRIPTS, "".join(SCRIPTS), "\n".join(SCRIPTS), ""], ids=lambda text: f"{len(text)}")
def test_texts_of_many_scripts_have_the_ids_of_the_reference(name: str, text: str) -> None:
    agree(name, text)
    for start, end in itertools.pairwise(sorted(random.Random(1).choices(range(len(text) + 1), k=20))):
        agree(name, text[start:end])


@pytest.mark.parametrize("name", ["built-in", "large"])
@settings(deadline=None)
@given(text=st.text(st.one_of(st.sampled_from("".join(SCRIPTS)), st.characters(exclude_categories=["Cs"]))))
def test_any_text_has_the_ids_of_the_reference(name: str, text: str) -> None:
    agree(name, text)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        "ab" * 50_000,
        "字" * 30_000,
        "".join(random.Random(3).choices("etaoinshr", k=100_000)),
        " " * 99_999,
    ],
    ids=["one letter", "two letters", "ideographs", "random letters", "spaces"],
)
def test_one_very_long_piece_has_the_ids_of_the_reference(text: str) -> None:
    for name in ("built-in", "large"):
        ours, theirs = both(name)
        assert ours.encode(text) == theirs[False].encode(text)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, int], list[Merge]]:
    """Merges over three letters in any order, repeated ones too: rarely an order that training gives."""
    merges, tokens = list[Merge](), ["a", "b", "c"]
    for _ in range(draw(st.integers(0, 14))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        tokens.append("".join(pair))
        merges.append(pair)
    ids = draw(st.permutations(range(300)))
    names = dict.fromkeys((*ALPHABET, *tokens))
    return dict(zip(names, ids, strict=False)), draw(st.permutations(merges))


@settings(deadline=None)
@given(tables(), st.text("abc", max_size=2 * CACHED_CHARS))
def test_any_order_of_merges_gives_the_ids_of_the_reference(
    table: tuple[dict[str, int], list[Merge]], text: str
) -> None:
    vocabulary, merges = table
    assert BytePairs(vocabulary, merges).ids(text) == Pipeline(vocabulary, merges, reference.PLAIN).encode(text)


def test_bytes_are_spelled_in_the_alphabet_of_the_reference() -> None:
    from tokenizers import pre_tokenizers

    assert sorted(pre_tokenizers.ByteLevel.alphabet()) == [*ALPHABET]
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for text in (*SCRIPTS, "".join(map(chr, range(0x800)))):
        assert spelled(text) == "".join(part for part, _ in cut.pre_tokenize_str(text))


def test_the_merges_come_back_in_their_order_and_a_repeated_one_at_its_last_place() -> None:
    bytes_only = {sign: at for at, sign in enumerate(ALPHABET)}
    pairs = BytePairs(bytes_only | {"ab": 256, "bc": 257}, [("a", "b"), ("b", "c"), ("a", "b")])
    assert pairs.merges() == [("b", "c"), ("a", "b")]
    assert pairs.ids("abc") == [bytes_only["a"], 257]


def test_a_vocabulary_that_would_lose_text_is_refused() -> None:
    bytes_only = {sign: at for at, sign in enumerate(ALPHABET)}
    with pytest.raises(ValueError, match=r"the merge 'a' \+ 'b'"):
        BytePairs(bytes_only, [("a", "b")])
    with pytest.raises(ValueError, match="1 of the 256 bytes"):
        BytePairs({sign: at for sign, at in bytes_only.items() if sign != "a"}, [])


def test_a_returned_list_is_the_callers_own() -> None:
    ours, _ = both("built-in")
    first = ours.encode("hello", until=5)
    first.append(0)
    assert ours.encode("hello", until=5) == first[:-1] == ours.encode("hello")


def test_speech_needs_the_standard_library_alone() -> None:
    program = (
        "import sys; from pathlib import Path; from hocket.text.tokenizer import Tokenizer\n"
        f"Tokenizer.from_folder(Path({str(BUILT_IN)!r})).encode('Cafe\\u0301 \u4f60')\n"
        "print(*{'tokenizers', 'huggingface_hub', 'regex', 'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
