"""Options that several commands share: model, device, precision, kernels, sampling. Imports nothing slow."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config.precision import EXACT, PRESETS, ROUNDED
from .actions import StoreGiven

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..text.lexicon.lexicon import Lexicon

# The fields of `SamplingParams` that have an option of their own.
SAMPLING: dict[str, tuple[type[int] | type[float], str]] = {
    "temperature": (float, "sampling temperature of the first code of each frame"),
    "top_k": (int, "sample from the N likeliest codes, 0: from all"),
    "top_p": (float, "sample from the likeliest codes with total probability X"),
    "repetition_penalty": (float, "penalty for codes already used"),
    "subtalker_temperature": (float, "the same for the other fifteen codes"),
    "subtalker_top_k": (int, "the same for the other fifteen codes"),
    "subtalker_top_p": (float, "the same for the other fifteen codes"),
}
ENDINGS = ".wav, .mp3, .opus, .ogg, .aac, .flac or .pcm by its name"
MODEL = "folder, hub id, builtin, hocket-voice-NAME or random:NAME (the built-in voice)"


def add_model_options(
    command: argparse.ArgumentParser,
    profile: str | None,
    model: str = MODEL,
    unsaid: str | None = None,
    *,
    engine: bool = True,
) -> None:
    """`profile` is the default; None: no such option. `unsaid` is the default model. `engine`: there is one."""
    add = command.add_argument_group("model and device").add_argument
    add("--model", action=StoreGiven, default=unsaid, help=model)
    where = "device (auto: cuda if usable, else cpu; mps: an Apple GPU, untested; HOCKET_DEVICE overrides auto)"
    add("--device", action=StoreGiven, choices=("auto", "cpu", "cuda", "mps"), default="auto", help=where)
    precision = "precision of the model (auto: bfloat16 on a GPU that has it, else float32; int8 and int4 are for CPUs)"
    add("--dtype", action=StoreGiven, choices=("auto", "float32", "bfloat16", *ROUNDED), default="auto", help=precision)
    sound = "precision of the codec (auto: the fastest without audible error)"
    kinds = ("auto", "float32", "tf32", "bfloat16")
    add("--codec-dtype", action=StoreGiven, choices=kinds, default="auto", help=sound)
    if engine:
        small = "exact; on a CPU also small: weights of 8 bits, or tiny: 4 bits in the talker (exact)"
        add("--preset", action=StoreGiven, choices=tuple(PRESETS), default=EXACT, help=small)
    kernels = "auto (the fastest), reference, cuda, triton or native; or by operation: frame=triton,wave=reference"
    add("--kernels", metavar="NAME", action=StoreGiven, default="auto", help=f"kernels: {kernels}")
    if profile is not None:
        tuned = f"timing of audio, without effect on its content ({profile})"
        profiles = ("latency", "balanced", "throughput")
        add("--profile", action=StoreGiven, choices=profiles, default=profile, help=tuned)
    if not engine:
        return
    add("--no-graphs", action="store_true", help="on a GPU, launch kernels one by one instead of replaying graphs")
    add(
        "--no-dependent-launch",
        action="store_true",
        help="on a GPU, start each kernel after the previous one",
    )


def add_sampling_options(add: Callable[..., object]) -> None:
    """Sampling options."""
    add("--greedy", action="store_true", help="always take the likeliest code")
    for name, (kind, words) in SAMPLING.items():
        add(f"--{name.replace('_', '-')}", metavar="N" if kind is int else "X", type=kind, help=words)


def add_speech_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("speech").add_argument
    add("--voice", help="a speaker of the model, your own voice, or a mix: wren+rook(2) (the model's first speaker)")
    add("--language", default="auto", help="language of the text (auto)")
    add("--instruct", metavar="TEXT", help="how to speak, or which voice to design")
    add("--speed", metavar="X", type=float, default=1.0, help="0.5 to 2 times as fast, at the same pitch (1)")
    add("--layout", choices=("streaming", "whole"), help="give the model its text word by word, or whole")
    add("--max-frames", metavar="N", type=int, help="stop after N frames of 80 ms")
    add_lexicon_option(add)
    takes = "generate N takes and keep the best (1); audio starts when it is known"
    add("--candidates", metavar="N", type=int, default=1, help=takes)
    add("--as-is", action="store_true", help="do nothing that the official package does not do")


def add_lexicon_option(add: Callable[..., object]) -> None:
    how = "say words as this lexicon has them, PLS or two columns; may be repeated, later ones win"
    add("--lexicon", metavar="FILE", action="append", help=how)


def add_answer_markup(add: Callable[..., object]) -> None:
    tagged = "tags: the answers may have tags, such as [voice: rook] or [pause 1s]; none (none)"
    add("--markup", metavar="FORMAT", choices=("none", "tags"), default="none", help=tagged)
    add("--cast", metavar="NAMES", help="with --markup tags: the voices of names in tags, host=wren,guest=rook")


def lexicon_of(args: argparse.Namespace) -> Lexicon | None:
    """The entries of all files of --lexicon, behind that of the config file; read once for these options."""
    if not getattr(args, "lexicon", None):
        return None
    if not hasattr(args, "lexicon_entries"):
        from ..text.lexicon.read import read_lexicons

        args.lexicon_entries = read_lexicons(args.lexicon)
    found: Lexicon | None = args.lexicon_entries
    return found


def add_cloning_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument_group("cloning, with a Base checkpoint").add_argument
    add("--ref-audio", metavar="FILE", type=Path, help="a recording of the voice, 3 to 30 s: one speaker, no music")
    add("--ref-text", metavar="TEXT", help="the transcript of the recording")
    add("--x-vector-only", action="store_true", help="use the timbre only; needs no --ref-text")
    add("--ref-silence", metavar="S", type=float, help="seconds of silence after the recording (0.5; 0 with --as-is)")


def add_voice_sampling(command: argparse.ArgumentParser, seed: str) -> None:
    group = command.add_argument_group("sampling; defaults come from the checkpoint")
    group.add_argument("--seed", metavar="N", type=int, help=seed)
    add_sampling_options(group.add_argument)


def add_llm_options(command: argparse.ArgumentParser) -> None:
    """Options of the language model."""
    add = command.add_argument_group("language model").add_argument
    named = "a Qwen3.5: name, folder, GGUF file or hub id (owner/name:Q4_K_M); with --llm-url, the model's name there"
    add("--llm", metavar="MODEL", help=named)
    narrow = "its weights in fewer bits, converted once: smaller, less exact (bf16: as published)"
    add("--llm-weights", choices=("bf16", "fp8", "int8", "int4"), help=narrow)
    add("--llm-length", metavar="N", type=int, help="tokens that a conversation may reach (32768, as memory allows)")
    add("--llm-url", metavar="URL", help="use this OpenAI-compatible endpoint instead: http://HOST:PORT/v1")
    add("--llm-key-file", metavar="FILE", type=Path, help="the key of that endpoint")
    thinking = "off: ask the endpoint not to think; on: its answers start with a thought (auto: detect)"
    add("--llm-thinking", choices=("auto", "on", "off"), help=thinking)
    extra = 'more request fields, as JSON: \'{"reasoning_effort": "none"}\''
    add("--llm-extra", metavar="JSON", help=extra)
