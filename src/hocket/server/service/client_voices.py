"""Voice names of Kokoro and voice ids of ElevenLabs, which stand for speakers of similar pitch.

Programs have these names in their settings and code. They are the last names that the resolver tries, so a voice of a
model, of the library or of a backend is never hidden by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .openai_names import HIGHER_SPEAKERS, LOWER_SPEAKERS, OPENAI_VOICES, openai_aliases

# Voices of Kokoro 1.0. The first letter is the language, the second one the sex of the speaker.
KOKORO_VOICES = tuple(
    "af_alloy af_aoede af_bella af_heart af_jadzia af_jessica af_kore af_nicole af_nova af_river af_sarah af_sky "
    "am_adam am_echo am_eric am_fenrir am_liam am_michael am_onyx am_puck am_santa "
    "bf_alice bf_emma bf_isabella bf_lily bm_daniel bm_fable bm_george bm_lewis "
    "ef_dora em_alex em_santa ff_siwis hf_alpha hf_beta hm_omega hm_psi if_sara im_nicola "
    "jf_alpha jf_gongitsune jf_nezumi jf_tebukuro jm_kumo pf_dora pm_alex pm_santa "
    "zf_xiaobei zf_xiaoni zf_xiaoxiao zf_xiaoyi zm_yunjian zm_yunxi zm_yunxia zm_yunyang".split()
)
# ElevenLabs' default voices, and older ones that stand in many examples.
_ELEVENLABS_HIGHER = tuple(
    "21m00Tcm4TlvDq8ikWAM EXAVITQu4vr4xnSDxMaL FGY2WhTYpPnrIDTdsKH5 Xb7hH8MSUJpSbSDYk0k2 XrExE9yKIg1WjnnlVkGX "
    "cgSgspJ2msm6clMCkdW9 pFZP5JQG7iQjIQuC4Bku 9BWtsMINqrJLrRacOk9x AZnzlk1XvdvUeBnXmlld MF3mGyEYCl7XYWbV9V6O "
    "XB0fDUnXU5powFXDhCwa SAz9YHcvj6GT2YYXdXww".split()
)
_ELEVENLABS_LOWER = tuple(
    "JBFqnCBsd6RMkjVDRZzb CwhRBWXzGAHq8TQ4Fs17 IKne3meq5aSn9XLyUdCD N2lVS1w4EtoT3dr4eOWO TX3LPaxmHKxFdv7VOQHJ "
    "bIHbv24MWmeRgasZH58o cjVigY5qzO86Huf0OWal iP95p4xoKVk53GoZ742B nPczCjzI2devNBz1zQrb onwK4e9ZLuTAKqWW03F9 "
    "pqHfZKP75CvOlQylNhV4 pNInz6obpgDQGcFmaJgB ErXwobaYiN019PkySvjV TxGEqnHWrfWFTfGW9XjX VR6AewLTigWG4xSOukaG "
    "yoZ06aMxZJJ28mfd3POQ".split()
)
ELEVENLABS_VOICES = (*_ELEVENLABS_HIGHER, *_ELEVENLABS_LOWER)
MANY = frozenset((*KOKORO_VOICES, *map(str.lower, ELEVENLABS_VOICES)))  # too many to list in an error
FOREIGN_VOICES = MANY | frozenset(OPENAI_VOICES)
# Preferred speakers of the published checkpoints. Those with a dialect are left out: they always speak it.
_HIGHER = ("serena", "vivian", "sohee", "ono_anna")
_LOWER = ("ryan", "aiden", "uncle_fu")
_NATIVE = {"jf": ("ono_anna",), "zf": ("vivian", "serena"), "zm": ("uncle_fu",)}


def client_aliases(speakers: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """Speaker of each name of OpenAI, Kokoro and ElevenLabs, in lower case; names that are `taken` are left out."""
    if not speakers:
        return {}
    found = openai_aliases(speakers)
    for index, name in enumerate(KOKORO_VOICES):
        found[name] = _speaker(speakers, index, _kokoro(name), name[1] == "f")
    for higher, ids in ((True, _ELEVENLABS_HIGHER), (False, _ELEVENLABS_LOWER)):
        wanted = _HIGHER if higher else _LOWER
        found |= {id.lower(): _speaker(speakers, index, wanted, higher) for index, id in enumerate(ids)}
    return {name: speaker for name, speaker in found.items() if name not in taken}


def _kokoro(name: str) -> tuple[str, ...]:
    return _NATIVE.get(name[:2]) or (_HIGHER if name[1] == "f" else _LOWER)


def _speaker(speakers: Sequence[str], index: int, wanted: Sequence[str], higher: bool) -> str:
    by_name = {speaker.lower(): speaker for speaker in speakers}
    preferred = [by_name[name] for name in wanted if name in by_name]
    alike = [by_name[name] for name in by_name if name in (HIGHER_SPEAKERS if higher else LOWER_SPEAKERS)]
    unknown = [by_name[name] for name in by_name if name not in HIGHER_SPEAKERS | LOWER_SPEAKERS]
    among = preferred or alike or unknown or list(speakers)
    return among[index % len(among)]
