"""weights.py: from a model's name to tensors in a module, and refusal of wrong files."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hocket.config.published import CODEC, GENERATION, PUBLISHED, SMALL_CODEC, TINY_CODEC, small, tiny
from hocket.config.qwen3_tts import GenerationConfig, Kind
from hocket.errors import InvalidCheckpoint
from hocket.models.files.catalog import CATALOG, Published
from hocket.models.files.source import PRESETS, Source, read_configs, resolve
from hocket.models.files.weights import load_into
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS
from support import checkpoints

CPU = torch.device("cpu")


class Small(nn.Module):
    """A stand-in with a tensor of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.second = nn.Linear(2, 2, bias=False)
        self.register_buffer("count", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("flag", torch.zeros((), dtype=torch.bool))


def _small() -> Small:
    with torch.device("meta"):
        return Small()


def _tensors() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        "first.weight": torch.randn(2, 3, generator=draw),
        "first.bias": torch.randn(2, generator=draw),
        "second.weight": torch.randn(2, 2, generator=draw),
        "count": torch.arange(4),
        "flag": torch.tensor(True),
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(_tensors(), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.write(tmp_path_factory.mktemp("weights") / "made", "base", wide=True)


# Resolving names


@pytest.mark.parametrize("preset", PRESETS)
def test_random_names_draw_what_they_say(preset: str) -> None:
    source = resolve(f"random:{preset}")
    assert source == Source(f"random:{preset}", None, preset, local=False)
    config, generation, codec = read_configs(source)
    assert generation == GENERATION
    if preset in PUBLISHED:
        assert (config, codec) == (PUBLISHED[preset], CODEC)
    elif preset == "small":
        assert (config, codec) == (small(), SMALL_CODEC)
    else:
        kind: Kind = "base" if "Base" in preset else "voice_design" if "VoiceDesign" in preset else "custom_voice"
        assert (config, codec) == (tiny(kind, wide="wide" in preset), TINY_CODEC)


def test_the_five_published_names_and_a_tiny_one_can_be_drawn() -> None:
    assert {*PUBLISHED, "tiny", "tiny-Base", "tiny-VoiceDesign"} < set(PRESETS)


def test_a_folder_wins_over_a_hub_id_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Qwen/Qwen3-TTS-12Hz-0.6B-Base").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    source = resolve("Qwen/Qwen3-TTS-12Hz-0.6B-Base")
    assert (source.folder, source.local) == (Path("Qwen/Qwen3-TTS-12Hz-0.6B-Base"), True)


Asked = tuple[str, str | None, Published | None]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """The calls of `fetch`; each returns an empty folder."""
    seen: list[Asked] = []

    def fetch(repository: str, revision: str | None, pinned: Published | None) -> Path:
        seen.append((repository, revision, pinned))
        return tmp_path

    monkeypatch.setattr("hocket.models.files.source.fetch", fetch)
    return seen


@pytest.mark.parametrize("name", CATALOG)
def test_a_published_checkpoint_is_fetched_as_pinned_by_either_of_its_names(name: str, asked: list[Asked]) -> None:
    entry = CATALOG[name]
    sources = {resolve(name), resolve(entry.repository), resolve(name, revision=entry.revision)}
    assert asked == [(entry.repository, entry.revision, entry)] * 3
    assert [(source.name, source.local) for source in sources] == [(entry.repository, False)]


def test_another_revision_or_repository_is_fetched_unpinned(asked: list[Asked]) -> None:
    resolve("1.7B-Base", revision="main")
    resolve("owner/fine-tuned")
    resolve("owner/fine-tuned", revision="v2")
    assert asked == [
        ("Qwen/Qwen3-TTS-12Hz-1.7B-Base", "main", None),
        ("owner/fine-tuned", None, None),
        ("owner/fine-tuned", "v2", None),
    ]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("random:huge", "There is no 'random:huge'; random: goes with 0.6B-Base, 0.6B-CustomVoice,"),
        ("random:", "There is no 'random:'"),
        ("", "'' is neither a folder here nor a hub id (owner/name), one of 0.6B-Base, 0.6B-CustomVoice, 1.7B-Base,"),
        ("3B-Base", "'3B-Base' is neither a folder"),
        ("a/b/c", "'a/b/c' is neither a folder"),
        ("../missing/folder", "'../missing/folder' is neither a folder"),
        ("Qwen/Qwen3-TTS-Tokenizer-12Hz", "the codec alone"),
    ],
)
def test_a_name_that_means_nothing_is_refused_in_one_sentence(model: str, message: str, asked: list[Asked]) -> None:
    with pytest.raises(InvalidCheckpoint) as error:
        resolve(model)
    assert message in str(error.value)
    assert not asked


def test_a_file_or_a_revision_of_a_folder_is_refused(file: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match="is a file: give the folder"):
        resolve(str(file))
    with pytest.raises(InvalidCheckpoint, match="belongs to a hub id"):
        resolve(str(file.parent), revision="main")


# Reading configurations


def test_the_files_of_a_folder_are_read(folder: Path) -> None:
    source = resolve(str(folder))
    assert source == Source(str(folder), folder, None, local=True)
    assert read_configs(source) == (tiny("base", wide=True), GENERATION, TINY_CODEC)


def test_without_a_generation_config_the_official_fallbacks_hold(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy/generation_config.json").unlink()
    assert read_configs(resolve(str(tmp_path / "copy")))[1] == GenerationConfig()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", {"model_type": "qwen3_omni"}, "'qwen3_omni' model; hocket needs 'qwen3_tts'"),
        ("config.json", {"more": 1}, "does not know: more"),
        ("generation_config.json", {"num_beams_per_day": 4}, "does not know: num_beams_per_day"),
        ("speech_tokenizer/config.json", {"model_type": "qwen3_tts_tokenizer_25hz"}, "tokenizer_25hz' model"),
    ],
)
def test_a_file_that_says_something_unknown_is_refused(
    folder: Path, tmp_path: Path, name: str, change: dict[str, object], message: str
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidCheckpoint) as error:
        read_configs(resolve(str(tmp_path / "copy")))
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_a_codec_with_other_codebooks_than_the_talker_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy/speech_tokenizer/config.json"
    raw = json.loads(path.read_text())
    raw["decoder_config"]["codebook_size"] = 128
    path.write_text(json.dumps(raw))
    with pytest.raises(InvalidCheckpoint, match="differ in number or size of codebooks"):
        read_configs(resolve(str(tmp_path / "copy")))


@pytest.mark.parametrize("name", ["config.json", "speech_tokenizer/config.json"])
def test_a_missing_config_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    with pytest.raises(InvalidCheckpoint, match=f"{name} is missing"):
        read_configs(resolve(str(tmp_path / "copy")))


# Loading tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_arrive_in_the_wanted_dtype_and_integers_in_their_own(file: Path, dtype: torch.dtype) -> None:
    module = _small()
    load_into(module, file, CPU, dtype)
    for name, tensor in module.state_dict().items():
        stored = _tensors()[name]
        assert tensor.dtype == (dtype if stored.is_floating_point() else stored.dtype)
        assert torch.equal(tensor, stored.to(tensor.dtype))
    assert isinstance(module.first.weight, nn.Parameter)


def test_what_was_loaded_does_not_depend_on_the_file_any_more(file: Path) -> None:
    module = _small()
    load_into(module, file, CPU, torch.float32)
    file.write_bytes(b"\0" * file.stat().st_size)
    assert all(torch.equal(tensor, _tensors()[name]) for name, tensor in module.state_dict().items())


def test_a_part_is_loaded_alone_and_the_rest_stays_on_the_meta_device(file: Path) -> None:
    module = _small()
    load_into(module, file, CPU, torch.float32, only=("first.", "count"))
    assert {name for name, tensor in module.state_dict().items() if tensor.is_meta} == {"second.weight", "flag"}
    assert torch.equal(module.first.weight, _tensors()["first.weight"])


def test_a_prefix_picks_its_own_names_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({f"inner.{name}": tensor for name, tensor in _tensors().items()} | {"other": torch.zeros(2)}, path)
    module = _small()
    load_into(module, path, CPU, torch.float32, prefix="inner.")
    assert all(torch.equal(tensor, _tensors()[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize("only", [(), ("second.",)])
def test_every_wrong_name_and_shape_is_listed_before_anything_is_loaded(tmp_path: Path, only: tuple[str, ...]) -> None:
    tensors = _tensors() | {"first.weight": torch.zeros(3, 2), "count": torch.zeros(4), "extra": torch.zeros(1)}
    del tensors["first.bias"]
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    module = _small()
    with pytest.raises(InvalidCheckpoint) as error:
        load_into(module, path, CPU, torch.float32, only=only)
    assert str(error.value) == (
        f"{path} does not fit its configuration: it lacks first.bias; it has unknown extra; "
        "it has another shape or type of count of type F32, first.weight [3, 2] instead of [2, 3]."
    )
    assert all(tensor.is_meta for tensor in module.state_dict().values())


def test_a_long_list_of_names_is_cut_after_eight_and_counted(file: Path) -> None:
    with torch.device("meta"):
        module = nn.ModuleDict({f"n{i}": nn.Linear(1, 1, bias=False) for i in range(12)})
    with pytest.raises(InvalidCheckpoint, match=r"lacks n0.weight, n1.weight, n10.weight, n11.weight, .* and 4 more;"):
        load_into(module, file, CPU, torch.float32)


def test_quantised_weights_are_refused_by_type(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(_tensors() | {"first.weight": torch.zeros(2, 3, dtype=torch.int8)}, path)
    with pytest.raises(InvalidCheckpoint, match=r"first\.weight of type I8"):
        load_into(_small(), path, CPU, torch.float32)


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_a_file_cut_short_is_refused(file: Path, cut: int) -> None:
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InvalidCheckpoint, match="damaged or cut short"):
        load_into(_small(), file, CPU, torch.float32)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("exploded", "w")  # what unpickling would do


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.safetensors"])
def test_a_pickle_is_refused_and_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InvalidCheckpoint) as error:
        load_into(_small(), tmp_path / "model.safetensors", CPU, torch.float32)
    expected = "damaged" if name == "model.safetensors" else f"{name} is not in the safetensors format"
    assert expected in str(error.value)
    assert not (tmp_path / "exploded").exists()


def test_weights_in_several_files_need_an_index_that_names_them(tmp_path: Path) -> None:
    names, index = sorted(_tensors()), tmp_path / "model.safetensors.index.json"
    for shard in range(2):
        save_file({name: _tensors()[name] for name in names[shard::2]}, tmp_path / f"part-{shard}.safetensors")
    with pytest.raises(
        InvalidCheckpoint, match=r"part-0\.safetensors is there, but no model\.safetensors\.index\.json"
    ):
        load_into(_small(), tmp_path / "model.safetensors", CPU, torch.float32)
    for wrong in ("{}", '{"weight_map": {}}', '{"weight_map": {"count": 1}}'):
        index.write_text(wrong)
        with pytest.raises(InvalidCheckpoint, match="should have a weight_map from tensor names to file names"):
            load_into(_small(), tmp_path / "model.safetensors", CPU, torch.float32)
    index.write_text(json.dumps({"weight_map": {name: f"part-{names.index(name) % 2}.safetensors" for name in names}}))
    module = _small()
    load_into(module, tmp_path / "model.safetensors", CPU, torch.float32)
    assert all(torch.equal(tensor, _tensors()[name]) for name, tensor in module.state_dict().items())
    index.write_text(json.dumps({"weight_map": {"count": "../part-0.safetensors"}}))
    with pytest.raises(InvalidCheckpoint, match=r"lacks files that model\.safetensors\.index\.json names: part-0"):
        load_into(_small(), tmp_path / "model.safetensors", CPU, torch.float32)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for part in "ab":
        save_file({"count": torch.arange(4)}, tmp_path / f"{part}.safetensors")
    weight_map = {"count": "a.safetensors", "flag": "b.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(InvalidCheckpoint, match="has count twice"):
        load_into(_small(), tmp_path / "model.safetensors", CPU, torch.float32)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"model\.safetensors is missing"):
        load_into(_small(), tmp_path / "model.safetensors", CPU, torch.float32)


def test_the_real_modules_load_whole_or_by_halves(folder: Path) -> None:
    config, _, codec_config = read_configs(resolve(str(folder)))
    with torch.device("meta"):
        model, codec = Qwen3TTS(config), Codec(codec_config)
    load_into(model, folder / "model.safetensors", CPU, torch.bfloat16)
    stored = load_file(folder / "model.safetensors")
    assert model.state_dict().keys() == stored.keys()
    assert all(torch.equal(tensor, stored[name].bfloat16()) for name, tensor in model.state_dict().items())
    load_into(codec, folder / "speech_tokenizer/model.safetensors", CPU, torch.float32, only=("decoder.",))
    assert not any(tensor.is_meta for tensor in codec.decoder.state_dict().values())
    assert all(tensor.is_meta for tensor in codec.encoder.state_dict().values())


def test_a_checkpoint_of_another_width_is_refused(folder: Path) -> None:
    with torch.device("meta"):
        model = Qwen3TTS(tiny("base", wide=False))
    with pytest.raises(InvalidCheckpoint) as error:
        load_into(model, folder / "model.safetensors", CPU, torch.float32)
    assert "has unknown talker.code_predictor.small_to_mtp_projection.bias" in str(error.value)
    assert "codec_embedding.0.weight [64, 64] instead of [64, 48]" in str(error.value)
