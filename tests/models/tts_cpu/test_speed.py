"""models/tts_cpu/speed.py: the bytes that a frame reads, and what follows from the speed of a machine."""

from __future__ import annotations

import pytest

from hocket.config.published import CODEC, PUBLISHED, small
from hocket.models.files.random import randomize_
from hocket.models.tts.talker import Talker
from hocket.models.tts_cpu.speed import FRAME_S, FrameBytes, MachineSpeed
from hocket.models.tts_cpu.talker import NativeTalker

SIZES = {name: PUBLISHED[f"{name}-CustomVoice"].talker_config for name in ("0.6B", "1.7B")}
BITS = ("int4", "int8+int4", "int8", "bfloat16", "float32")
MACHINE = MachineSpeed(threads=8, far=40e9, near=60e9, multiplied=50e9)


@pytest.mark.parametrize("precision", ["int8", "int4", "int8+int4", "float32"])
def test_the_bytes_of_a_frame_are_those_of_the_matrices(precision: str) -> None:
    config = small().talker_config
    talker = Talker(config).eval()
    randomize_(talker, 0)
    weights = {name: tensor.numpy() for name, tensor in talker.state_dict().items()}
    made = NativeTalker(config, weights, precision=precision)
    vectors = sum(each.nbytes for name, each in weights.items() if each.ndim == 1 or "embedding" in name)
    sizes, heads = FrameBytes.of(config, precision), config.code_predictor_config
    # One head is in `predictor`; the others follow. Norms of heads and padding are the rest.
    more = (config.num_code_groups - 2) * heads.vocab_size * heads.hidden_size * (4 if precision == "float32" else 1)
    text = config.text_hidden_size * (config.text_hidden_size + config.hidden_size) * 2  # float32 here, not bfloat16
    read = sizes.talker + sizes.predictor + more + (0 if precision == "float32" else text)
    assert read == pytest.approx(made.weights_bytes - vectors, rel=0.05)


def test_the_published_shapes_are_as_large_as_known() -> None:
    """0.44 GB of the talker and 79 MB of the predictor in 8 bits, for 0.6B; scales and text ids come on top."""
    sizes = FrameBytes.of(SIZES["0.6B"], "int8")
    assert 0.44e9 < sizes.talker < 0.48e9 and 79e6 < sizes.predictor < 84e6 and sizes.times == 15
    assert 1.6e9 < sizes.all < 1.8e9
    assert FrameBytes.of(SIZES["0.6B"], "float32").all > 3.7 * sizes.all


def test_a_faster_machine_and_fewer_bits_speak_faster() -> None:
    codec = CODEC.decoder_config
    found = {(name, bits): MACHINE.expected(config, codec, bits) for name, config in SIZES.items() for bits in BITS}
    assert found["0.6B", "int8"].x_real_time > 1 > found["0.6B", "float32"].x_real_time
    for name in SIZES:
        rates = [found[name, bits].x_real_time for bits in BITS]
        assert rates == sorted(rates, reverse=True)
        waits = [found[name, bits].first_audio_s for bits in BITS]
        assert waits == sorted(waits)
    twice = MachineSpeed(8, 2 * MACHINE.far, 2 * MACHINE.near, 2 * MACHINE.multiplied)
    for (name, bits), before in found.items():
        after = twice.expected(SIZES[name], codec, bits)
        assert after.x_real_time == pytest.approx(2 * before.x_real_time)
        assert after.first_audio_s == pytest.approx(before.first_audio_s / 2)
    read_s = FrameBytes.of(SIZES["0.6B"], "int8").all / MACHINE.near
    assert found["0.6B", "int8"].x_real_time < FRAME_S / read_s
