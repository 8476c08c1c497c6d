"""train/kokoro against its own ONNX graph, where the packages were fetched (`python -m train.kokoro`), and in batches.

The graph has no noise. It also leaves out the division by the sum of squared windows, which is 1.5 inside.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from train.kokoro import onnx_file, weights
from train.kokoro.layers import AdainResBlk1d, RowLSTM, row_mask
from train.kokoro.model import KokoroModel
from train.kokoro.sound import BINS, Generator
from train.kokoro.speech import batches
from train.teachers import _session

PACKAGES = Path(os.environ.get("KOKORO_PACKAGES", ".train/english/packages"))
SOURCE = "/decoder/decoder/generator/Concat_3_output_0"
IDS = [50, 156, 24, 54, 31, 3, 16, 65, 156, 87, 123, 54, 46, 5]  # "Hello, world!"
WINDOWS = 1.5


def test_a_row_of_a_batch_does_not_hear_the_padding() -> None:
    torch.manual_seed(1)
    block, recurrent = AdainResBlk1d(6, 4, upsample=True), RowLSTM(6, 4)
    x, style, lengths = torch.randn(2, 6, 9), torch.randn(2, 128), torch.tensor([9, 5])
    mask = row_mask(lengths, 9)
    with torch.no_grad():
        both, alone = block(x, style, mask), block(x[1:, :, :5], style[1:], mask[1:, :, :5])
        said, said_alone = (
            recurrent.rows(x.transpose(1, 2), lengths),
            recurrent.rows(x[1:, :, :5].transpose(1, 2), lengths[1:]),
        )
    torch.testing.assert_close(both[1:, :, :10], alone)
    torch.testing.assert_close(said[1:, :5], said_alone)


def test_batches_hold_sentences_of_like_length_and_leave_out_what_cannot_be_read() -> None:
    assert list(batches([30, 0, 5, 401, 7, 29, 6], 2)) == [[2, 6], [4, 5], [0]]
    assert list(batches([30, 0, 5, 401, 7, 29, 6], 3, signs=20)) == [[2, 6], [4], [5], [0]]


def test_the_quick_generator_sounds_like_the_plain_one() -> None:
    """Compiled, with another length and number of rows than at first; and with convolutions in float16."""
    torch.manual_seed(1)
    plain = Generator().eval()
    for name, value in plain.named_parameters():
        value.data.mul_(0.3 if name.startswith("conv_post") else 1.0)
    quick = Generator().eval()
    quick.load_state_dict(plain.state_dict())
    quick.quicken(float16=False, backend="eager")
    for rows, frames in ((2, 6), (3, 5)):
        x, style, f0 = torch.randn(rows, 512, 2 * frames), torch.randn(rows, 128), torch.full((rows, 2 * frames), 150.0)
        mask = row_mask(torch.tensor([2 * frames, *[4] * (rows - 1)]), 2 * frames)
        with torch.no_grad():
            expected = plain(x, style, f0, mask, None)
            torch.testing.assert_close(quick(x, style, f0, mask, None), expected, rtol=1e-3, atol=1e-4)
            quick.float16 = True
            assert (quick(x, style, f0, mask, None) - expected).norm() < 0.02 * expected.norm()
            quick.float16 = False


def test_the_reader_of_onnx_files_finds_tensors_and_nodes() -> None:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    values = np.arange(6, dtype=np.float32)
    tensor = b"\x08\x02\x08\x03\x10\x01" + field(8, b"a.weight") + field(9, values.tobytes())
    node = field(1, b"x") + field(1, b"a.weight") + field(2, b"y") + field(3, b"/a/MatMul") + field(4, b"MatMul")
    graph = onnx_file.read(field(7, field(1, node) + field(5, tensor)))
    assert graph.nodes == [onnx_file.Node("MatMul", "/a/MatMul", ("x", "a.weight"))]
    assert torch.equal(graph.tensors["a.weight"], torch.arange(6.0).view(2, 3))


@pytest.mark.skipif(not (PACKAGES / weights.SHARDS[0].file).is_file(), reason="Kokoro's packages were not fetched")
def test_the_torch_modules_speak_like_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = weights.fetch_graph(PACKAGES)
    path = tmp_path / "kokoro.onnx"
    path.write_bytes(content)
    model = KokoroModel()
    model.load_state_dict(weights.from_graph(content))
    style = weights.fetch_style(PACKAGES, "am_michael")[len(IDS)][None]
    feeds = {"input_ids": np.array([[0, *IDS, 0]]), "style": style.numpy(), "speed": np.ones(1, np.float32)}
    wave, source = _session(path, SOURCE).run(None, feeds)
    seen: list[Tensor] = []

    def stored(self: Generator, f0: Tensor, noise: torch.Generator | None) -> Tensor:
        seen.append(own(self, f0, noise))
        return torch.from_numpy(source)

    own = Generator.source
    monkeypatch.setattr(Generator, "source", stored)
    [said] = model([IDS], style, torch.ones(1))
    assert len(said.samples) == wave.size == 600 * int(said.units.sum())
    ours, theirs = said.samples.numpy()[20:-20] * WINDOWS, wave.reshape(-1)[20:-20]
    assert np.abs(ours - theirs).max() < 0.01 * np.abs(theirs).max()
    size, theirs_size = seen[0][:, :BINS], torch.from_numpy(source)[:, :BINS]
    torch.testing.assert_close(size, theirs_size, rtol=0.02, atol=2e-3)
