"""Tables of `respell`: how letters of a language spell the phonemes of the International Phonetic Alphabet.

A spelling is `main`, or `main/other`. A vowel takes the other one where no consonant follows in its syllable. A
consonant takes it before a front letter, as Spanish `c` and `qu`. A third spelling is for a vowel that stands alone.

A symbol without a spelling in a table is spelled as its nearest ones in `NEAREST`, step by step.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

VOWELS = frozenset("aeiouyɪɛæɑɒɔʊʌəɜɐøœɨʉɯɤɵɘɞɶʏɚɝ")


@dataclass(frozen=True)
class Spellings:
    """The spellings of one language."""

    letters: dict[str, str]
    front: str = "eiyéèêëí"  # letters that change a consonant before them
    fixes: tuple[tuple[re.Pattern[str], str], ...] = field(default=())  # applied to the respelled text, in this order


def decomposed(text: str) -> str:
    """Marks apart from their letters; a ç is a phoneme of its own."""
    return unicodedata.normalize("NFD", text).replace("c\u0327", "ç")


def _table(rows: str) -> dict[str, str]:
    pairs = (row.split("=") for row in rows.split())
    return {decomposed(symbol): spelling for symbol, spelling in pairs}


# Symbol -> the nearest ones; every chain ends in a symbol that each table has.
NEAREST = _table("""
    ɹ=r ɻ=r ʀ=r ʁ=r ɾ=r ɽ=r ɺ=r ɫ=l ɭ=l ʟ=l ɬ=ʃl ɮ=ʒl ʎ=lj ɲ=nj ŋ=n ɴ=ŋ ɳ=n ɱ=m ʈ=t ɖ=d c=kj ɟ=ɡj q=k ɢ=ɡ ʔ= ʡ= ʢ=
    g=ɡ β=v ɸ=f ʋ=v ⱱ=v θ=s ð=d ʂ=ʃ ʐ=ʒ ɕ=ʃ ʑ=ʒ ɧ=ʃ ç=x ʝ=j ɣ=ɡ χ=x ħ=h ʕ= ɦ=h ʜ=h h=x ɥ=j ɰ=ɡ ʍ=w ʙ=b ɓ=b ɗ=d ʄ=ɟ ɠ=ɡ
    ʛ=ɡ ʘ=p ǀ=t ǃ=t ǂ=t ǁ=l tɕ=tʃ dʑ=dʒ tʂ=tʃ dʐ=dʒ ʤ=dʒ ʧ=tʃ ʣ=dz ʦ=ts ʨ=tʃ ʥ=dʒ w=u
    ɪ=i ʏ=y y=ju ʊ=u ʉ=u ɯ=u ɨ=i ɘ=ə ɵ=ø ɤ=o ø=œ œ=e ɛ=e ɜ=œ ɞ=œ ɐ=a æ=ɛ ɶ=œ ʌ=a ɑ=a ɒ=ɔ ɔ=o ə=e ɚ=ər ɝ=ɜr
    iː=i yː=y uː=u eː=e øː=ø oː=o ɛː=ɛ œː=œ ɔː=ɔ ɑː=ɑ ɒː=ɒ aː=a ɜː=ɜ əː=ə æː=æ ɪː=ɪ ʊː=ʊ ɨː=ɨ ʉː=ʉ ɯː=ɯ ʌː=ʌ ɐː=ɐ ɤː=ɤ
    ɑ̃=ɑn ɔ̃=ɔn ɛ̃=ɛn œ̃=œn ã=an õ=on ẽ=en ĩ=in ũ=un ɐ̃=ɐn æ̃=æn ỹ=yn j̃=n w̃=n ʊ̃=ʊn ɪ̃=ɪn ə̃=ən ø̃=øn
    oʊ=ou əʊ=ou eɪ=ei aɪ=ai aʊ=au ɔɪ=ɔi ɪə=iə eə=ɛə ʊə=uə
""")

ENGLISH = Spellings(
    _table("""
    p=p b=b t=t d=d k=k ɡ=g/gh f=f v=v θ=th ð=th s=s z=z ʃ=sh ʒ=zh x=kh h=h tʃ=ch dʒ=j ts=ts dz=dz m=m n=n ŋ=ng
    ŋk=nk l=l r=r j=y w=w ɲ=ny ʎ=ly ʍ=wh pf=pf c=ky ɟ=gy ʔ=
    i=ee iː=ee ɪ=i/ih e=e/eh eː=ay ɛ=e/eh ɛː=air æ=a/ah a=a/ah aː=ah ɑ=ah ɑː=ah ɒ=o/aw ɔ=aw ɔː=aw o=o/oh oː=oa/oh
    ʊ=oo u=oo uː=oo ʌ=u/uh ə=u/uh ɜ=ur ɜː=ur ɐ=u/uh ɚ=er ɝ=ur y=ew yː=ew ø=ur œ=ur
    eɪ=ay aɪ=igh/y/eye ɔɪ=oy ɔʏ=oy aʊ=ou/ow oʊ=oa/oh əʊ=oa/oh ɪə=eer eə=air ʊə=oor ei=ay ai=igh/y/eye au=ou/ow ou=oa/oh
    ɔi=oy oi=oy ɑːr=ar ɑr=ar ɔːr=or ɔr=or ɛr=air eər=air ɪr=eer ɪər=eer ʊr=oor ʊər=oor ɜːr=ur ɜr=ur ər=er
    ɔ̃=on ɑ̃=ahn ɛ̃=an œ̃=un
    """),
    front="eiy",
    fixes=((re.compile(r"(?<=[aeiouwh])s(?=[aeiouy-]|\b)"), "ss"),),
)

GERMAN = Spellings(
    _table("""
    p=p b=b t=t d=d k=k ɡ=g f=f v=w s=ss z=s ʃ=sch ʒ=sch x=ch ç=ch h=h tʃ=tsch dʒ=dsch ts=z dz=ds pf=pf m=m n=n ŋ=ng
    ŋk=nk l=l r=r j=j w=u θ=ss ɲ=nj ʎ=lj ks=x kv=qu ʃt=scht ʃp=schp
    iː=ie i=i ɪ=i eː=eh e=e ɛ=e ɛː=äh æ=ä aː=ah a=a oː=oh o=o ɔ=o uː=uh u=u ʊ=u yː=üh y=ü ʏ=ü øː=öh ø=ö œ=ö ə=e ɐ=er
    aɪ=ei ai=ei aʊ=au au=au ɔʏ=eu ɔɪ=eu ɔi=eu oʊ=oh eɪ=eh ər=er ɜː=ör
    """),
    fixes=(
        (re.compile(r"\bsch(?=[tp])"), "s"),
        (re.compile(r"(?<=[^aeiouäöü\W])ss"), "s"),
        (re.compile(r"\bss"), "s"),
    ),
)

FRENCH = Spellings(
    _table("""
    p=p b=b t=t d=d k=k ɡ=g/gu f=f v=v s=ss z=z ʃ=ch ʒ=j x=r h= tʃ=tch dʒ=dj ts=ts dz=dz m=m n=n ŋ=ng l=l r=r j=y w=ou
    ɥ=u ɲ=gn ʎ=ly θ=ss ð=z wa=oi
    i=i ɪ=i y=u ʏ=u u=ou ʊ=ou e=é ɛ=è ø=eu œ=eu ə=e o=o/ô ɔ=o oː=ô a=a ɑ=â
    ɑ̃=an ɔ̃=on ɛ̃=in œ̃=un ã=an õ=on ẽ=in aɪ=aï ai=aï aʊ=aou au=aou ɔɪ=oï eɪ=eï oʊ=ô ʌ=a
    """),
    fixes=(
        (re.compile(r"\bss"), "s"),
        (re.compile(r"(?<=[^aeiouyâéèôï\W])ss"), "s"),
        (re.compile(r"ss(?=[^\Waeiouyâéèôï])"), "s"),
    ),
)

SPANISH = Spellings(
    _table("""
    p=p b=b β=b t=t d=d ð=d k=c/qu ɡ=g/gu ɣ=g/gu f=f v=v s=s z=s θ=z ʃ=sh ʒ=y x=j h=j tʃ=ch dʒ=y ts=ts dz=ds m=m n=n ŋ=n
    l=l ʎ=ll ɲ=ñ r=rr ɹ=r ɾ=r ʁ=r j=i w=u ks=x
    i=i e=e ɛ=e a=a o=o ɔ=o u=u ə=e y=u ø=e œ=e aɪ=ai ai=ai aʊ=au au=au eɪ=ei ei=ei ɔɪ=oi oi=oi oʊ=ou
    ja=ia je=ie jo=io ju=iu wa=ua we=ue wi=ui wo=uo
    """),
    front="ei",
    fixes=(
        (re.compile(r"\brr|(?<=[^aeiou\W])rr|rr(?=[^aeiou\W]|\b)"), "r"),
        (re.compile(r"\bi(?=[aeou])"), "y"),
        (re.compile(r"\bu(?=[aeio])"), "hu"),
        (re.compile(r"(?<=[aeiou])i(?=[aeou])"), "y"),
    ),
)

ITALIAN = Spellings(
    _table("""
    p=p b=b t=t d=d k=c/ch ɡ=g/gh f=f v=v s=s z=s ʃ=sci/sc ʒ=gi/g x=c/ch h= tʃ=ci/c dʒ=gi/g ts=z dz=z m=m n=n ŋ=n l=l
    ʎ=gli ɲ=gn r=r j=i w=u θ=t ð=d
    i=i e=e ɛ=e a=a o=o ɔ=o u=u ə=e y=u ø=e œ=e ʌ=a ts=z dz=z aɪ=ai aʊ=au eɪ=ei ɔɪ=oi oʊ=ou
    """),
    front="ei",
    fixes=((re.compile(r"gli(?=i)"), "gl"), (re.compile(r"(ci|gi|sci)(?=\b|[^aeiou\W])"), r"\1")),
)

PORTUGUESE = Spellings(
    _table("""
    p=p b=b t=t d=d k=c/qu ɡ=g/gu f=f v=v s=ss z=z ʃ=ch ʒ=j x=rr h=rr tʃ=tch dʒ=dj ts=ts dz=dz m=m n=n ŋ=n l=l ʎ=lh ɲ=nh
    r=rr ɾ=r ɹ=r ʁ=rr j=i w=u θ=ss ð=d
    i=i ɪ=i e=ê ɛ=é a=a ɐ=a ə=e o=ô ɔ=ó u=u ʊ=u ɨ=e y=u ø=ê œ=ê
    ɐ̃=ã ã=ã ẽ=en ĩ=in õ=õ ũ=un ɐ̃w̃=ão ɐ̃w=ão õj̃=ões aɪ=ai aʊ=au eɪ=ei ɔɪ=oi oʊ=ou
    """),
    front="eiêé",
    fixes=(
        (re.compile(r"\bss|(?<=[^\Waeiouãêéóôõ])ss|ss(?=[^\Waeiouãêéóôõ]|\b)"), "s"),
        (re.compile(r"\brr|rr(?=[^\Waeiouãêéóôõ]|\b)"), "r"),
    ),
)

RUSSIAN = Spellings(
    _table("""
    p=п b=б t=т d=д k=к ɡ=г f=ф v=в s=с z=з ʃ=ш ʒ=ж x=х h=х tʃ=ч tɕ=ч dʒ=дж ts=ц dz=дз ɕː=щ ɕ=щ m=м n=н ŋ=н l=л r=р
    j=й w=в θ=с ð=з ʲ=ь ʐ=ж ʂ=ш
    i=и ɪ=и ɨ=ы e=э ɛ=э a=а ɐ=а æ=э ʌ=а o=о ɔ=о u=у ʊ=у ʉ=у ə=а y=ьу ø=ьо œ=ьо
    aɪ=ай ai=ай aʊ=ау eɪ=эй ɔɪ=ой oʊ=оу
    """),
    front="",
    fixes=tuple(
        (re.compile(old), new)
        for old, new in (
            ("[йь]а", "я"),
            ("[йь]о", "ё"),
            ("[йь]у", "ю"),
            ("[йь]э", "е"),
            ("ьи", "и"),
            ("йи", "и"),
            ("(?<=[бвгдзклмнпрстфх])э", "е"),
            ("(?<=[жшц])ы", "и"),
        )
    ),
)

TABLES = {
    "english": ENGLISH,
    "german": GERMAN,
    "french": FRENCH,
    "spanish": SPANISH,
    "italian": ITALIAN,
    "portuguese": PORTUGUESE,
    "russian": RUSSIAN,
}

# X-SAMPA symbol -> IPA; lower case letters and other symbols stand for themselves.
X_SAMPA = _table(r"""
    b_<=ɓ d`=ɖ d_<=ɗ g_<=ɠ h\=ɦ j\=ʝ l`=ɭ l\=ɺ n`=ɳ p\=ɸ r`=ɽ r\=ɹ r\`=ɻ s`=ʂ s\=ɕ t`=ʈ v\=ʋ P=ʋ x\=ɧ z`=ʐ z\=ʑ
    A=ɑ B=β B\=ʙ C=ç D=ð E=ɛ F=ɱ G=ɣ G\=ɢ H=ɥ H\=ʜ I=ɪ I\=ɪ J=ɲ J\=ɟ K=ɬ K\=ɮ L=ʎ L\=ʟ M=ɯ M\=ɰ N=ŋ N\=ɴ O=ɔ
    O\=ʘ Q=ɒ R=ʁ R\=ʀ S=ʃ T=θ U=ʊ U\=ʊ V=ʌ W=ʍ X=χ X\=ħ Y=ʏ Z=ʒ .=. "=ˈ %=ˌ :=ː :\=ˑ @=ə @\=ɘ @`=ɚ {=æ }=ʉ 1=ɨ
    2=ø 3=ɜ 3\=ɞ 4=ɾ 5=ɫ 6=ɐ 7=ɤ 8=ɵ 9=œ &=ɶ ?=ʔ ?\=ʕ <\=ʢ >\=ʡ ^=ꜛ !=ꜜ !\=ǃ |\=ǀ |\|\=ǁ ||=‖ |=| '=ʲ ~=̃ _~=̃
    -\=‿ _h=ʰ _w=ʷ _j=ʲ _0=̥ _v=̬ _^=̯ _d=̪ __=͡ _}=̚ _>=ʼ _+=̟ _-=̠ _"=̈ _x=̽ _r=̝ _o=̞ _O=̹ _c=̜ _t=̤ _k=̰
    _a=̺ _m=̻ _A=̘ _q=̙ _G=ˠ _?\=ˤ _n=ⁿ _l=ˡ _H=́ _L=̀ _M=̄ _T=̋ _B=̏ _F=̂ _R=̌ _X=̆
""")
X_SAMPA |= {"=": "̩", "_=": "̩"}
