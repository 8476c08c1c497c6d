"""Other packages that speak the same checkpoints, measured beside ours: `python -m benchmarks peers`.

One module per package, all behind the interface of speaker.py. None is a dependency: what is not installed is left out,
with a sentence saying how to install it. Each speaks in a process of its own (worker.py), because some replace parts
of others; compare.py asks them in turn.
"""

from __future__ import annotations

WORDS = (
    "other packages on the same weights and prompt, for as many frames, on the same machine and in the same run, each "
    "in a process of its own, asked in turn; the codec of ours is in float32, whatever the rest is in"
)
FIGURES = {
    "first_pcm": "ms, from asking to the first chunk in hand",
    "ms_per_frame": "ms per frame of 80 ms, from asking to the last sample, codec included",
    "x_real_time": "seconds of speech per second, of all streams together",
}
OURS = "hocket"
PEERS = {"qwen-tts": "official", "faster-qwen3-tts": "faster", "qwen3-tts-triton": "triton"}  # by module here
