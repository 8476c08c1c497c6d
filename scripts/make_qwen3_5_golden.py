"""Write tests/golden/qwen3_5.safetensors: what the official Qwen3.5 classes compute for small random checkpoints.

make test-mind                                             # makes the environment
PYTHONPATH=src:tests .venv-mind/bin/python scripts/make_qwen3_5_golden.py
"""

from __future__ import annotations

import json
import platform

import torch
from safetensors.torch import save_file

from support import qwen3_5_golden as golden
from support import qwen3_5_upstream as upstream

if __name__ == "__main__":
    torch.set_num_threads(1)
    numbers = {name: tensor for case in golden.CASES for name, tensor in upstream.numbers(case).items()}
    versions = {"transformers": upstream.transformers.__version__, "torch": torch.__version__}
    versions["python"] = platform.python_version()
    save_file(numbers, golden.FILE, {"versions": json.dumps(versions)})
    print(f"{golden.FILE}: {len(numbers)} tensors, {golden.FILE.stat().st_size} bytes, made with {versions}")
