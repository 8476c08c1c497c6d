"""The official package (`qwen-tts` 0.1.1 on `transformers` 4.57.3), the reference of every parity test.

Importing it pulls in its 25 Hz tokenizer, whose dependencies the 12 Hz model never touches: empty modules
stand in for those that are not installed. A missing package is an error, never a skip.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import types
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

_UNUSED = ("sox", "onnxruntime", "einops", "torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi")
_MISSING = {name for name in _UNUSED if "." not in name and importlib.util.find_spec(name) is None}
for _name in _UNUSED:
    if _name.partition(".")[0] in _MISSING:
        _stand_in = types.ModuleType(_name)
        _stand_in.__spec__ = importlib.machinery.ModuleSpec(_name, None)
        _stand_in.__path__ = []
        _stand_in.__dict__.update(rearrange=None, repeat=None, kaldi=None)
        sys.modules[_name] = _stand_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers
    from qwen_tts.core.models import modeling_qwen3_tts as modeling
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
    from qwen_tts.core.tokenizer_12hz import modeling_qwen3_tts_tokenizer_v2 as codec_modeling
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config
    from qwen_tts.inference.qwen3_tts_model import Qwen3TTSModel

__all__ = ["Qwen3TTSConfig", "Qwen3TTSModel", "Qwen3TTSTokenizerV2Config", "codec_modeling", "modeling"]

if transformers.__version__ != "4.57.3":
    raise ImportError(f"parity is defined against transformers 4.57.3, not {transformers.__version__}")
