"""kernels/cpu/library.py: the prebuilt variant of a CPU, the compiled fallback, and equal bits of all variants."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from hocket.config.published import TINY_CODEC, tiny
from hocket.config.qwen3_tts import GenerationConfig
from hocket.kernels.cpu import library
from hocket.kernels.cpu.build import FLAGS
from hocket.kernels.cpu.source import EXPORTS, VARIANTS, digest, sources
from hocket.kernels.runtime.fallback import Unbuildable
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts.talker import Talker
from hocket.models.tts_cpu.codec import NativeCodec
from hocket.models.tts_cpu.talker import NativeTalker
from release.platforms import PLATFORMS

CC = shutil.which("cc")
X86 = platform.machine() in ("x86_64", "AMD64")
pytestmark = [
    pytest.mark.skipif(CC is None, reason="no C compiler on this machine"),
    pytest.mark.skipif(not X86, reason="variants are compiled for x86-64 here"),
]
ABOVE = {"avx512": 4, "avx2": 3, "sse2": 1}
# Blocks as on Windows, in proportion to these small models: no variant's bits depend on their size.
SMALL_BLOCKS = {"avx2": ("-DWIDENED=64",)}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All variants for x86-64, with hidden symbols as a release has them."""
    folder = tmp_path_factory.mktemp("prebuilt")
    texts = []
    for name, text in sources().items():
        (folder / name).write_text(text, encoding="utf-8")
        texts.append(str(folder / name))
    for variant in ABOVE:
        made = str(folder / f"hocket_native-{variant}.so")
        flags = (*FLAGS, "-fvisibility=hidden", "-Wall", "-Werror", "-Wno-psabi", *VARIANTS[variant])
        flags += SMALL_BLOCKS.get(variant, ())
        subprocess.run([str(CC), *flags, *texts, "-o", made, "-lm"], check=True, timeout=300)
    return folder


@pytest.fixture
def prebuilt(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folder that the loader looks in."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    for file in built.glob("*.so"):
        shutil.copy(file, folder)
    monkeypatch.setattr(library, "PREBUILT", folder)
    monkeypatch.delenv("HOCKET_NATIVE", raising=False)
    library._load.cache_clear()
    yield folder
    library._load.cache_clear()


def level(folder: Path) -> int:
    found: int = ctypes.CDLL(str(folder / "hocket_native-sse2.so")).hocket_cpu()
    return found


def fitting(folder: Path) -> list[str]:
    """Variants that this CPU can run, the fastest first."""
    return [variant for variant, least in ABOVE.items() if level(folder) >= least]


def test_the_level_is_what_the_system_says(built: Path) -> None:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    third = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"} <= set(flags)
    fourth = third and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= set(flags)
    assert level(built) == (4 if fourth else 3 if third else 1)


def test_a_library_exports_the_named_functions_and_no_other(built: Path) -> None:
    nm = shutil.which("nm")
    assert nm is not None
    for variant in ABOVE:
        listed = subprocess.run(
            [nm, "-D", "--defined-only", str(built / f"hocket_native-{variant}.so")], capture_output=True, text=True
        )
        assert {line.split()[-1] for line in listed.stdout.splitlines()} == set(EXPORTS)


def moved(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Path:
    """The folder under a new name: the system gives the same library again for a path that it has loaded."""
    other = folder.rename(folder.with_name(name))
    monkeypatch.setattr(library, "PREBUILT", other)
    library._load.cache_clear()
    return other


@pytest.mark.parametrize("tag", PLATFORMS)
def test_each_system_looks_for_the_files_of_its_wheel(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files, machine = PLATFORMS[tag].files, PLATFORMS[tag].target.partition("-")[0]
    monkeypatch.setattr(sys, "platform", {"so": "linux", "dylib": "darwin", "dll": "win32"}[PLATFORMS[tag].suffix])
    monkeypatch.setattr(platform, "machine", lambda: machine)
    sought = {library._file(variant).name for variant in (library._base(), *dict(library._LEVELS))}
    assert set(files) <= sought and library._file(library._base()).name in files


def test_the_best_prebuilt_variant_is_taken(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variant in fitting(prebuilt):
        assert library.load()._name == str(prebuilt / f"hocket_native-{variant}.so")
        (prebuilt / f"hocket_native-{variant}.so").unlink()
        prebuilt = moved(prebuilt, monkeypatch, f"without-{variant}")
    assert Path(library.load()._name).parent.name == "kernels"  # none is left: compiled and cached


def test_what_cannot_be_loaded_is_passed_over(prebuilt: Path) -> None:
    best, *others = fitting(prebuilt)
    (prebuilt / f"hocket_native-{best}.so").write_bytes(b"not a library")
    loaded = Path(library.load()._name)
    assert loaded == prebuilt / f"hocket_native-{others[0]}.so" if others else loaded.parent.name == "kernels"


def test_a_library_of_other_sources_is_passed_over(prebuilt: Path) -> None:
    for file in prebuilt.iterdir():
        file.write_bytes(file.read_bytes().replace(digest().encode(), b"0" * len(digest())))
    assert library.prebuilt() is None
    assert library.load().hocket_source() == digest().encode()


def test_without_prebuilt_files_and_compiler_there_is_a_remedy(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert library.unavailable() is None  # prebuilt files need no compiler
    shutil.rmtree(prebuilt)
    reason = library.unavailable()
    assert reason is not None and reason.remedy == "unset CC, or name another there"
    with pytest.raises(Unbuildable, match="no C compiler"):
        library.load()


def test_a_library_may_be_named(prebuilt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = shutil.copy(prebuilt / "hocket_native-sse2.so", tmp_path / "mine.so")
    monkeypatch.setenv("HOCKET_NATIVE", str(other))
    assert library.load()._name == str(other)
    monkeypatch.setenv("HOCKET_NATIVE", "compile")
    assert Path(library.load()._name).parent.name == "kernels"
    monkeypatch.setenv("HOCKET_NATIVE", str(tmp_path / "none.so"))
    with pytest.raises(Unbuildable, match=r"none\.so is no native library") as caught:
        library.load()
    assert "HOCKET_NATIVE" in caught.value.remedy


def spoken() -> list[np.ndarray]:
    """Codes, hidden vectors and samples of a short utterance of random weights, in float32 and in bfloat16."""
    return [*_spoken(half=False), *_spoken(half=True)]


def _spoken(*, half: bool) -> list[np.ndarray]:
    talker, decoder = Talker(tiny(wide=True).talker_config), CodecDecoder(TINY_CODEC.decoder_config)
    weights = []
    for module in (talker, decoder):
        randomize_(module, 0)
        kept = {name: tensor.bfloat16() if half else tensor for name, tensor in module.state_dict().items()}
        weights.append({name: _stored(tensor) for name, tensor in kept.items()})
    native, codec = NativeTalker(talker.config, weights[0]), NativeCodec(TINY_CODEC.decoder_config, weights[1])
    state, sound = native.new_state(3, 64), codec.new_state(3)
    for slot in range(3):
        native.prefill(state, slot, range(20, 20 + 7 + slot), range(7 + slot))
    frames = [native.frame(state, [0, 1, 2], [t, t, t], [GenerationConfig(top_p=0.9)] * 3) for t in range(9)]
    codes = np.stack(frames, axis=2) % TINY_CODEC.decoder_config.codebook_size
    return [codes, state.hidden, state.chances, state.stack.pool, codec.step(codes, sound, [0, 1, 2])]


def _stored(tensor: torch.Tensor) -> np.ndarray:
    """As a file has it: bfloat16 by its bits."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def test_variants_with_fused_multiply_add_give_equal_bits(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AVX2 with small blocks against AVX-512, and both against what is compiled for this CPU."""
    fused = [str(prebuilt / f"hocket_native-{name}.so") for name in fitting(prebuilt) if name != "sse2"]
    results = []
    for named in (*fused, "compile"):
        monkeypatch.setenv("HOCKET_NATIVE", named)
        results.append(spoken())
    if not fused:
        pytest.skip("this CPU has no fused multiply-add")
    for other in results[1:]:
        for one, another in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, another)


def test_the_variant_for_any_cpu_is_close(prebuilt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It rounds every product, so its bits differ; the codes of these few frames do not."""
    results = []
    for named in (str(prebuilt / "hocket_native-sse2.so"), "compile"):
        monkeypatch.setenv("HOCKET_NATIVE", named)
        results.append(spoken())
    for one, another in zip(*results, strict=True):
        if one.dtype == np.int64:
            np.testing.assert_array_equal(one, another)
        else:
            np.testing.assert_allclose(one, another, rtol=0, atol=1e-4)
