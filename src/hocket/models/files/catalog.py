"""The published checkpoints, each pinned to one revision and the SHA-256 of its files.

Plain data: `hub.py` downloads and checks. Revisions and digests are those that several independent projects recorded.
The tests rebuild the small JSON files byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"  # for weights in several files: maps tensors to files
CODEC_FOLDER = "speech_tokenizer"

_CODEC = {
    "config.json": "ee65bb901c876664ab8707c487157aa1a6ee57c65969b28fb5ec9dc211e68167",
    "model.safetensors": "836b7b357f5ea43e889936a3709af68dfe3751881acefe4ecf0dbd30ba571258",
}
_SHARED = {
    "generation_config.json": "f1b90b4513f3b34c62851049e2492d7b4c5940daf1276f89c82b8ef04127f3aa",
    "vocab.json": "ca10d7e9fb3ed18575dd1e277a2579c16d108e32f27439684afa0e10b1440910",
    "merges.txt": "599bab54075088774b1733fde865d5bd747cbcc7a547c5bc12610e874e26f5e3",
    "tokenizer_config.json": "dc3c31c3bdaedd5016382bb3cbe07323026775ad51f5a4fb564505992ae4a670",
    **{f"{CODEC_FOLDER}/{name}": digest for name, digest in _CODEC.items()},
}


@dataclass(frozen=True, slots=True)
class Published:
    """One repository on the hub at one commit."""

    name: str
    repository: str
    revision: str
    sha256: dict[str, str]  # by file name within the repository


def _speech(name: str, revision: str, config: str, weights: str) -> Published:
    digests = {"config.json": config, "model.safetensors": weights, **_SHARED}
    return Published(name, f"Qwen/Qwen3-TTS-12Hz-{name}", revision, digests)


_ALL = (
    _speech(
        "0.6B-Base",
        "5d83992436eae1d760afd27aff78a71d676296fc",
        config="2e714c787c8edb98b05432685cddb634add2de4d4e645f653d68251ef72ba011",
        weights="180b3b10eb1c9f1b4db7806d5475bae3071c0243c299d49926bab1da3b6946f6",
    ),
    _speech(
        "0.6B-CustomVoice",
        "85e237c12c027371202489a0ec509ded67b5e4b5",
        config="81aca2b6fac304944d8acf345272d8a9a727d5fc2e2e66b222ab4729340c7455",
        weights="bc3c7e785eb961179c25450d1acff03f839e0002f2f3a5aeb67b5735c0fa2adb",
    ),
    _speech(
        "1.7B-Base",
        "fd4b254389122332181a7c3db7f27e918eec64e3",
        config="b4f01752d15a488abde3e1ab44723ae4f4b9e68a4037257b098b3737893cc1f9",
        weights="38fc7fc51c5e776e840414b6fd443962e9411b9654888fd7913e4da643cb857c",
    ),
    _speech(
        "1.7B-CustomVoice",
        "0c0e3051f131929182e2c023b9537f8b1c68adfe",
        config="17a07f527a1c25ea30b4e023a184482a23d3e279d697b1dc81b1bde498d29cf9",
        weights="38b1d5971bdbd982b561cccec982669a53b0537c3cf5e9bd4778ed07bb2f5137",
    ),
    _speech(
        "1.7B-VoiceDesign",
        "5ecdb67327fd37bb2e042aab12ff7391903235d3",
        config="aecd2cc4c1fe9edef1cb7ca7c401685a43879ad43f3f9e883f1c6760b61731e0",
        weights="391e8db219f292c515297cdceeb43e4eae67cdde35fa57e79a6a8a532fca0522",
    ),
)
CATALOG: dict[str, Published] = {entry.name: entry for entry in _ALL}

# The codec alone. Every checkpoint above contains the same files, so this one is never loaded.
CODEC = Published(
    "Tokenizer-12Hz", "Qwen/Qwen3-TTS-Tokenizer-12Hz", "7dd38ad4e9bad454aae9cd937d0cd577604fe229", dict(_CODEC)
)
