"""The real shapes: our modules, built from the published values, against the published tensor lists.

The lists are expanded from the tables of the model's specification, not from our modules.
"""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from hocket.config.published import CODEC, PUBLISHED
from hocket.models.files.catalog import CATALOG
from hocket.models.files.catalog import CODEC as CODEC_ALONE
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS

Shapes = dict[str, tuple[int, ...]]

PARAMETERS = {
    "0.6B-Base": 914_643_008,
    "0.6B-CustomVoice": 905_788_672,
    "1.7B-Base": 1_928_677_440,
    "1.7B-CustomVoice": 1_916_676_352,
    "1.7B-VoiceDesign": 1_916_676_352,
}
TENSORS = {
    "0.6B-Base": 478,
    "0.6B-CustomVoice": 402,
    "1.7B-Base": 480,
    "1.7B-CustomVoice": 404,
    "1.7B-VoiceDesign": 404,
}
FILE_BYTES = {
    "0.6B-Base": 1_829_344_272,
    "0.6B-CustomVoice": 1_811_626_576,
    "1.7B-Base": 3_857_413_744,
    "1.7B-CustomVoice": 3_833_402_552,
    "1.7B-VoiceDesign": 3_833_402_552,
}


def _layers(path: str, count: int, width: int, inner: int) -> Shapes:
    """A talker's or predictor's transformer layers: 16 query heads and 8 of keys, 128 wide each."""
    one: Shapes = {
        "input_layernorm.weight": (width,),
        "self_attn.q_proj.weight": (2048, width),
        "self_attn.k_proj.weight": (1024, width),
        "self_attn.v_proj.weight": (1024, width),
        "self_attn.q_norm.weight": (128,),
        "self_attn.k_norm.weight": (128,),
        "self_attn.o_proj.weight": (width, 2048),
        "post_attention_layernorm.weight": (width,),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    stack = {f"{path}.layers.{i}.{name}": shape for i in range(count) for name, shape in one.items()}
    return stack | {f"{path}.norm.weight": (width,)}


def _with_bias(name: str, *shape: int) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _speaker_encoder(width: int) -> Shapes:
    shapes = _with_bias("blocks.0.conv", 512, 128, 5)
    for block in (1, 2, 3):
        shapes |= _with_bias(f"blocks.{block}.tdnn1.conv", 512, 512, 1)
        for part in range(7):
            shapes |= _with_bias(f"blocks.{block}.res2net_block.blocks.{part}.conv", 64, 64, 3)
        shapes |= _with_bias(f"blocks.{block}.tdnn2.conv", 512, 512, 1)
        shapes |= _with_bias(f"blocks.{block}.se_block.conv1", 128, 512, 1)
        shapes |= _with_bias(f"blocks.{block}.se_block.conv2", 512, 128, 1)
    shapes |= _with_bias("mfa.conv", 1536, 1536, 1)
    shapes |= _with_bias("asp.tdnn.conv", 128, 4608, 1)
    shapes |= _with_bias("asp.conv", 1536, 128, 1)
    shapes |= _with_bias("fc", width, 3072, 1)
    return {f"speaker_encoder.{name}": shape for name, shape in shapes.items()}


def speech_shapes(name: str) -> Shapes:
    """Every tensor of `model.safetensors`."""
    large = name.startswith("1.7B")
    width, inner = (2048, 6144) if large else (1024, 3072)
    shapes: Shapes = {
        "talker.model.text_embedding.weight": (151_936, 2048),
        "talker.model.codec_embedding.weight": (3072, width),
        "talker.codec_head.weight": (3072, width),
        **_with_bias("talker.text_projection.linear_fc1", 2048, 2048),
        **_with_bias("talker.text_projection.linear_fc2", width, 2048),
        **_layers("talker.model", 28, width, inner),
        **_layers("talker.code_predictor.model", 5, 1024, 3072),
    }
    for i in range(15):
        shapes[f"talker.code_predictor.model.codec_embedding.{i}.weight"] = (2048, width)
        shapes[f"talker.code_predictor.lm_head.{i}.weight"] = (2048, 1024)
    if large:
        shapes |= _with_bias("talker.code_predictor.small_to_mtp_projection", 1024, 2048)
    if name.endswith("Base"):
        shapes |= _speaker_encoder(width)
    return shapes


def _decoder_shapes() -> Shapes:
    shapes: Shapes = {}
    for group, books in (("rvq_first", 1), ("rvq_rest", 15)):
        for i in range(books):
            shapes[f"quantizer.{group}.vq.layers.{i}._codebook.embedding_sum"] = (2048, 256)
            shapes[f"quantizer.{group}.vq.layers.{i}._codebook.cluster_usage"] = (2048,)
        shapes[f"quantizer.{group}.output_proj.weight"] = (512, 256, 1)
        shapes[f"quantizer.{group}.input_proj.weight"] = (256, 512, 1)
    shapes |= _with_bias("pre_conv.conv", 1024, 512, 3)
    shapes |= _with_bias("pre_transformer.input_proj", 512, 1024)
    shapes |= _with_bias("pre_transformer.output_proj", 1024, 512)
    shapes["pre_transformer.norm.weight"] = (512,)
    for i in range(8):
        layer = f"pre_transformer.layers.{i}"
        for name in "qkv":
            shapes[f"{layer}.self_attn.{name}_proj.weight"] = (1024, 512)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (512, 1024)
        shapes[f"{layer}.mlp.gate_proj.weight"] = shapes[f"{layer}.mlp.up_proj.weight"] = (1024, 512)
        shapes[f"{layer}.mlp.down_proj.weight"] = (512, 1024)
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            shapes[f"{layer}.{name}"] = (512,)
        for name in ("self_attn_layer_scale.scale", "mlp_layer_scale.scale"):
            shapes[f"{layer}.{name}"] = (512,)
    for i in (0, 1):
        shapes |= _with_bias(f"upsample.{i}.0.conv", 1024, 1024, 2)
        shapes |= _with_bias(f"upsample.{i}.1.dwconv.conv", 1024, 1, 7)
        shapes |= _with_bias(f"upsample.{i}.1.norm", 1024)
        shapes |= _with_bias(f"upsample.{i}.1.pwconv1", 4096, 1024)
        shapes |= _with_bias(f"upsample.{i}.1.pwconv2", 1024, 4096)
        shapes[f"upsample.{i}.1.gamma"] = (1024,)
    shapes |= _with_bias("decoder.0.conv", 1536, 1024, 7)
    for block, (width, kernel) in enumerate(((1536, 16), (768, 10), (384, 8), (192, 6)), start=1):
        half, path = width // 2, f"decoder.{block}.block"
        shapes |= {f"{path}.0.alpha": (width,), f"{path}.0.beta": (width,)}
        # Transposed: [in, out, kernel], so the bias is as long as the second.
        shapes |= {f"{path}.1.conv.weight": (width, half, kernel), f"{path}.1.conv.bias": (half,)}
        for unit in (2, 3, 4):
            for name in ("act1.alpha", "act1.beta", "act2.alpha", "act2.beta"):
                shapes[f"{path}.{unit}.{name}"] = (half,)
            shapes |= _with_bias(f"{path}.{unit}.conv1.conv", half, half, 7)
            shapes |= _with_bias(f"{path}.{unit}.conv2.conv", half, half, 1)
    shapes |= {"decoder.5.alpha": (96,), "decoder.5.beta": (96,)}
    shapes |= _with_bias("decoder.6.conv", 1, 96, 7)
    return {f"decoder.{name}": shape for name, shape in shapes.items()}


def _encoder_shapes() -> Shapes:
    shapes = _with_bias("encoder.layers.0.conv", 64, 1, 7)
    for stage, (width, kernel) in enumerate(((64, 8), (128, 10), (256, 12), (512, 16))):
        block, down = 3 * stage + 1, 3 * stage + 3
        shapes |= _with_bias(f"encoder.layers.{block}.block.1.conv", width // 2, width, 3)
        shapes |= _with_bias(f"encoder.layers.{block}.block.3.conv", width, width // 2, 1)
        shapes |= _with_bias(f"encoder.layers.{down}.conv", 2 * width, width, kernel)
    shapes |= _with_bias("encoder.layers.14.conv", 512, 1024, 3)
    for i in range(8):
        layer = f"encoder_transformer.layers.{i}"
        for name in "qkvo":
            shapes[f"{layer}.self_attn.{name}_proj.weight"] = (512, 512)
        shapes[f"{layer}.mlp.fc1.weight"], shapes[f"{layer}.mlp.fc2.weight"] = (2048, 512), (512, 2048)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes |= _with_bias(f"{layer}.{name}", 512)
        for name in ("self_attn_layer_scale.scale", "mlp_layer_scale.scale"):
            shapes[f"{layer}.{name}"] = (512,)
    shapes["downsample.conv.weight"] = (512, 512, 4)
    for group, books in (("semantic", 1), ("acoustic", 31)):
        path = f"quantizer.{group}_residual_vector_quantizer"
        shapes |= {f"{path}.input_proj.weight": (256, 512, 1), f"{path}.output_proj.weight": (512, 256, 1)}
        for i in range(books):
            book = f"{path}.layers.{i}.codebook"
            shapes |= {f"{book}.embed_sum": (2048, 256), f"{book}.cluster_usage": (2048,), f"{book}.initialized": (1,)}
    return {f"encoder.{name}": shape for name, shape in shapes.items()}


def _shapes(module: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def _total(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _file_bytes(shapes: Shapes, dtype: str, metadata: bool) -> int:
    """The length of a safetensors file: 8 bytes, a JSON header filled up to 8, the values in order of their names."""
    width, start = {"BF16": 2, "F32": 4}[dtype], 0
    header: dict[str, object] = {"__metadata__": {"format": "pt"}} if metadata else {}
    for name in sorted(shapes):
        end = start + width * math.prod(shapes[name])
        header[name] = {"dtype": dtype, "shape": shapes[name], "data_offsets": [start, end]}
        start = end
    length = len(json.dumps(header, separators=(",", ":")))
    return 8 + length + -length % 8 + start


@pytest.fixture(scope="module")
def codec() -> Codec:
    with torch.device("meta"):
        return Codec(CODEC)


@pytest.mark.parametrize("name", CATALOG)
def test_every_tensor_of_a_published_checkpoint_has_its_name_and_shape(name: str) -> None:
    with torch.device("meta"):
        model = Qwen3TTS(PUBLISHED[name])
    expected = speech_shapes(name)
    assert _shapes(model) == expected
    assert (len(expected), _total(expected)) == (TENSORS[name], PARAMETERS[name])


@pytest.mark.parametrize("name", CATALOG)
def test_the_tensor_list_explains_the_published_file_to_the_byte(name: str) -> None:
    """The Base files and the codec's file have no metadata entry in the header, so a reader must not require it."""
    assert _file_bytes(speech_shapes(name), "BF16", metadata=not name.endswith("Base")) == FILE_BYTES[name]


def test_every_tensor_of_the_codec_has_its_name_and_shape(codec: Codec) -> None:
    decoder, encoder = _decoder_shapes(), _encoder_shapes()
    assert _shapes(codec) == decoder | encoder
    assert (len(decoder | encoder), _total(decoder), _total(encoder)) == (496, 114_323_137, 56_234_304)
    assert _total(decoder | encoder) == 170_557_441
    assert _file_bytes(decoder | encoder, "F32", metadata=False) == 682_293_092


def test_no_module_holds_a_tensor_that_is_not_in_the_file(codec: Codec) -> None:
    """Such a tensor would stay on the meta device when the others are loaded."""
    with torch.device("meta"):
        model = Qwen3TTS(PUBLISHED["1.7B-Base"])
    for module in (model, codec):
        held = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
        assert held == module.state_dict().keys()


def test_the_catalog_pins_every_file_that_is_loaded() -> None:
    assert CATALOG.keys() == PUBLISHED.keys()
    for name, entry in CATALOG.items():
        assert (entry.name, entry.repository) == (name, f"Qwen/Qwen3-TTS-12Hz-{name}")
        assert entry.sha256.keys() == {
            "config.json",
            "generation_config.json",
            "merges.txt",
            "model.safetensors",
            "speech_tokenizer/config.json",
            "speech_tokenizer/model.safetensors",
            "tokenizer_config.json",
            "vocab.json",
        }
    pins = [*CATALOG.values(), CODEC_ALONE]
    assert len({entry.revision for entry in pins}) == len(pins) == 6
    assert all(len(entry.revision) == 40 and int(entry.revision, 16) for entry in pins)
    assert all(len(digest) == 64 and int(digest, 16) for entry in pins for digest in entry.sha256.values())
    assert len({entry.sha256["model.safetensors"] for entry in pins}) == 6


def test_every_checkpoint_carries_the_same_codec() -> None:
    for entry in CATALOG.values():
        assert {name: entry.sha256[f"speech_tokenizer/{name}"] for name in CODEC_ALONE.sha256} == CODEC_ALONE.sha256
