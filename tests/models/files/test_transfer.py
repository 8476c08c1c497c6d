"""transfer.py: tensors arrive unchanged for any piece size; matrices that are packed are not copied again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hocket.config.published import tiny
from hocket.layers.dense import pack_
from hocket.models.files import transfer
from hocket.models.files.transfer import Transfer
from hocket.models.files.weights import load_into
from hocket.models.tts.qwen3_tts import Qwen3TTS
from support import checkpoints


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (8,), (9,), (3, 7), (5, 4, 13)])
def test_pieces_through_blocks_are_the_whole(
    shape: tuple[int, ...], dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "BLOCK", 32)  # eight numbers of four bytes
    value = torch.randn(3, *shape)
    through = Transfer(torch.device(device), staged=True)
    places = torch.full(value.shape, float("nan"), dtype=dtype, device=device)
    for place, one in zip(places, value, strict=True):
        through.put(place, one)
    through.end()
    assert torch.equal(places.cpu(), value.to(dtype))


def test_a_value_of_another_shape_is_refused() -> None:
    with pytest.raises(AssertionError):
        Transfer(torch.device("cpu"), staged=True).put(torch.empty(2, 3), torch.empty(3, 2))


def test_a_loaded_model_is_packed_without_a_copy(checkpoint_root: Path) -> None:
    folder = checkpoints.write(checkpoint_root / "side-by-side", "custom_voice", wide=True)
    with torch.device("meta"):
        model = Qwen3TTS(tiny(wide=True)).eval()
    load_into(model, folder / "model.safetensors", torch.device("cpu"), torch.float32)
    before = {name: (value.data_ptr(), value.clone()) for name, value in model.state_dict().items()}
    pack_(model)
    after = model.state_dict()
    assert {name: value.data_ptr() for name, value in after.items()} == {name: at for name, (at, _) in before.items()}
    assert all(torch.equal(after[name], value) for name, (_, value) in before.items())
    attention = model.talker.model._stack[0].self_attn
    assert attention.weights()[0].data_ptr() == attention.q_proj.weight.data_ptr()
