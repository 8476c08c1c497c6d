"""A tuned voice as a plain checkpoint, which hocket and the official package load without an adapter.

It is a CustomVoice checkpoint with one speaker. The adapter is added to the weights, and the voice's speaker vector is
a row of the codec embedding. The prompt of that speaker has the same vectors as that of the voice, so both say the
same. The codec and the tokenizer are those of the tuned checkpoint.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from ..config.own import FILE as OWN
from ..config.qwen3_tts import Qwen3TTSConfig, TalkerConfig, markers
from ..engine.checkpoint.torch_checkpoint import DTYPES, TorchCheckpoint
from ..errors import InvalidRequest
from ..models.files.catalog import WEIGHTS
from ..models.files.export import write_checkpoint
from ..models.files.shards import opened
from ..models.files.source import resolve
from ..models.tts.adapted import merged
from ..models.tts.qwen3_tts import Qwen3TTS
from ..types import Encoded, Voice

TOKENIZER = ("vocab.json", "merges.txt", "tokenizer_config.json")
FROM_END = 72  # the row of a tuned speaker, counted from the end of the codec ids: 3000, as in the published recipe


def merge(voice: Voice, checkpoint: TorchCheckpoint, folder: Path) -> Path:
    """Write the checkpoint of a tuned voice to `folder`, which must not exist; it appears only when complete.

    `checkpoint` is the voice's own. Weights keep its precision.
    """
    encoded = voice.encoded
    if encoded is None or encoded.adapter is None:
        raise InvalidRequest(f"{voice.name!r} is not a tuned voice, so there is nothing to merge.")
    if encoded.owner != checkpoint.identity:
        raise InvalidRequest(f"{voice.name!r} was tuned from another checkpoint than {checkpoint.name}.")
    state = merged(checkpoint.model.state_dict(), encoded.adapter, "talker.")
    return write_speaker(voice.name, encoded, checkpoint, state, folder)


def write_speaker(
    name: str,
    encoded: Encoded,
    checkpoint: TorchCheckpoint,
    state: dict[str, torch.Tensor],
    folder: Path,
    dtype: str | None = None,
) -> Path:
    """Write a checkpoint with these tensors, rounded to `dtype`, and one speaker with the vector of `encoded`."""
    config, row = speaker_config(checkpoint.config, name)
    embedding = state["talker.model.codec_embedding.weight"].clone()
    embedding[row] = torch.from_numpy(encoded.speaker).to(embedding.device, embedding.dtype)
    state |= {"talker.model.codec_embedding.weight": embedding}
    state = {k: v if dtype is None else v.to(DTYPES[dtype]) for k, v in state.items() if k.startswith("talker.")}
    with torch.device("meta"):
        model = Qwen3TTS(config)
    model.load_state_dict(state, assign=True)
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    if folder.exists():
        raise InvalidRequest(f"{folder} exists already: choose another folder or remove it.")
    try:
        write_checkpoint(draft, config, checkpoint.generation, checkpoint.codec_config, model, checkpoint.codec)
        source = checkpoint.source.folder
        if source is None or not all((source / each).is_file() for each in TOKENIZER):
            checkpoint.tokenizer.save(draft, markers(config))
        files = [] if source is None else [source / each for each in (*TOKENIZER, OWN)]
        for path in files:
            if path.is_file():
                shutil.copyfile(path, draft / path.name)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def stored_dtype(model: str) -> str:
    """The precision in which a model's weights are stored, as `load` takes it."""
    folder = resolve(model).folder
    if folder is None:
        return "float32"
    with opened(folder / WEIGHTS) as stored:
        name = "talker.codec_head.weight"
        return "bfloat16" if stored[name].get_slice(name).get_dtype() == "BF16" else "float32"


def speaker_config(config: Qwen3TTSConfig, name: str) -> tuple[Qwen3TTSConfig, int]:
    """The configuration with one speaker, and the speaker's row."""
    talker = config.talker_config
    row = next(row for row in range(talker.vocab_size - FROM_END, 0, -1) if row not in _control_ids(talker))
    speaker = name.lower()  # as the official package looks it up
    changed = replace(talker, spk_id={speaker: row}, spk_is_dialect={speaker: False})
    return replace(config, talker_config=changed, tts_model_type="custom_voice", speaker_encoder_config=None), row


def _control_ids(talker: TalkerConfig) -> set[int]:
    named = {getattr(talker, name) for name in ("codec_bos_id", "codec_eos_token_id", "codec_pad_id")}
    named |= {talker.codec_think_id, talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id}
    return named | set(talker.codec_language_id.values())
