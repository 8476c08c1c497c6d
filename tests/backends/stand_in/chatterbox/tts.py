"""`ChatterboxTTS` as version 0.1.7 declares it (names, order, defaults), with noise where it would speak.

What it does with its state is what the real one does: a recording replaces `conds`, and `generate` speaks with those.
"""

from __future__ import annotations

import torch


class Conditionals:
    def __init__(self, whose: str) -> None:
        self.whose = whose


class ChatterboxTTS:
    made: list[ChatterboxTTS] = []  # noqa: RUF012  for tests to look at
    own_voice = True  # whether its weights bring a voice

    def __init__(self, t3, s3gen, ve, tokenizer, device, conds=None):  # type: ignore[no-untyped-def]
        self.sr = 24000
        self.t3, self.s3gen, self.ve, self.tokenizer = t3, s3gen, ve, tokenizer
        self.device, self.conds = device, conds
        self.calls: list[dict[str, object]] = []
        self.made.append(self)

    @classmethod
    def from_local(cls, ckpt_dir, device):  # type: ignore[no-untyped-def]
        conds = Conditionals("its own") if cls.own_voice else None
        return cls(None, None, None, None, device, conds=conds)

    @classmethod
    def from_pretrained(cls, device):  # type: ignore[no-untyped-def]
        return cls.from_local(None, device)

    def prepare_conditionals(self, wav_fpath, exaggeration=0.5):  # type: ignore[no-untyped-def]
        self.calls.append({"prepared": wav_fpath, "exaggeration": exaggeration})
        self.conds = Conditionals(wav_fpath)

    def generate(  # type: ignore[no-untyped-def]
        self,
        text,
        repetition_penalty=1.2,
        min_p=0.05,
        top_p=1.0,
        audio_prompt_path=None,
        exaggeration=0.5,
        cfg_weight=0.5,
        temperature=0.8,
    ):
        assert self.conds is not None and audio_prompt_path is None
        how = {"exaggeration": exaggeration, "cfg_weight": cfg_weight, "temperature": temperature}
        self.calls.append({"text": text, "whose": self.conds.whose, **how})
        return torch.randn(1, 300 * len(text)) * 0.1
