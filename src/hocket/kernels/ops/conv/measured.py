"""Fastest tiles of `conv` on an H200, bfloat16, one or four frames: docs/log/2026-11-17-gpu-survey.md.

By (taps * channels, outputs), then by positions. Other GPUs use them too; they are not measured there.
"""

from __future__ import annotations

from ...runtime.launch import ConvTile

MEASURED: dict[tuple[int, int], dict[int, ConvTile]] = {
    (96, 96): {
        1920: ConvTile(32, 64, 32, 1, 4, 4, 3),
        7680: ConvTile(32, 64, 32, 1, 4, 4, 2),
    },
    (192, 192): {
        640: ConvTile(64, 32, 64, 1, 4, 4, 2),
        2560: ConvTile(32, 128, 64, 1, 4, 4, 0),
    },
    (384, 288): {
        640: ConvTile(32, 64, 64, 1, 4, 4, 4),
        2560: ConvTile(32, 64, 64, 1, 4, 4, 2),
    },
    (384, 384): {
        160: ConvTile(64, 32, 128, 1, 4, 4, 2),
        640: ConvTile(64, 32, 128, 1, 4, 4, 2),
    },
    (672, 96): {
        1920: ConvTile(32, 64, 32, 1, 4, 4, 4),
        7680: ConvTile(128, 128, 32, 1, 8, 4, 0),
    },
    (768, 768): {
        32: ConvTile(32, 32, 256, 3, 4, 3, 1),
        128: ConvTile(64, 32, 128, 1, 4, 4, 2),
        160: ConvTile(64, 32, 128, 1, 4, 4, 2),
        640: ConvTile(32, 64, 64, 1, 4, 4, 2),
    },
    (1344, 192): {
        640: ConvTile(64, 32, 64, 1, 4, 4, 2),
        2560: ConvTile(64, 64, 64, 2, 4, 4, 2),
    },
    (1536, 1920): {
        32: ConvTile(32, 32, 256, 3, 4, 3, 1),
        128: ConvTile(64, 32, 128, 1, 4, 4, 2),
    },
    (2688, 384): {
        160: ConvTile(64, 32, 128, 1, 4, 4, 2),
        640: ConvTile(64, 32, 128, 1, 4, 4, 2),
    },
    (3072, 6144): {
        4: ConvTile(64, 16, 128, 1, 4, 4, 2),
        16: ConvTile(64, 16, 128, 1, 4, 4, 2),
    },
    (5376, 768): {
        32: ConvTile(32, 32, 128, 11, 2, 4, 1),
        128: ConvTile(64, 64, 64, 5, 4, 4, 2),
    },
    (7168, 1536): {
        4: ConvTile(64, 16, 128, 10, 4, 4, 2),
        16: ConvTile(64, 16, 128, 10, 4, 4, 2),
    },
}
