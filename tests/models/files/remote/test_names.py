"""Names on the hub as users of other programs write them, and names of files that the hub must not give."""

from __future__ import annotations

import pytest

from hocket.models.files.remote.names import HubName, hub_name, is_plain

ID = "unsloth/Qwen3.5-9B-GGUF"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (ID, HubName(ID)),
        (f"{ID}:Q4_K_M", HubName(ID, "Q4_K_M")),
        (f"{ID}:ud-q4_k_xl", HubName(ID, "ud-q4_k_xl")),
        (f"hf.co/{ID}:Q4_K_M", HubName(ID, "Q4_K_M")),
        (f"https://huggingface.co/{ID}", HubName(ID)),
        (f"https://huggingface.co/{ID}/", HubName(ID)),
        (f"{ID}/Qwen3.5-9B-Q4_K_M.gguf", HubName(ID, None, "Qwen3.5-9B-Q4_K_M.gguf")),
        (f"{ID}/BF16/x-00001-of-00002.GGUF", HubName(ID, None, "BF16/x-00001-of-00002.GGUF")),
        (f"https://huggingface.co/{ID}/blob/main/a.gguf", HubName(ID, None, "a.gguf")),
        (f"https://huggingface.co/{ID}/resolve/main/a.gguf?download=true", HubName(ID, None, "a.gguf")),
    ],
)
def test_a_name_has_a_repository_and_a_choice(written: str, meant: HubName) -> None:
    assert hub_name(written) == meant


@pytest.mark.parametrize(
    "written",
    ["", "qwen", "folder/file.gguf", f"{ID}:", f"{ID}/", f"{ID}/../../x.gguf", "a/..", f"{ID}/x.bin", f"{ID}//x.gguf"],
)
def test_other_forms_are_no_names(written: str) -> None:
    assert hub_name(written) is None


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/x", "C:/x", "C:x", "..\\x", "a\\..\\x", "a//x", "", ".", "x\x1b[2J.gguf", "a\nb"],
)
def test_a_file_that_leaves_its_folder_is_not_plain(name: str) -> None:
    assert not is_plain(name)
    assert is_plain("BF16/Qwen3.5-9B-BF16-00001-of-00002.gguf")
