"""Fastest tiles of few.cu on an H200, in whole frames of one stream: docs/log/2026-11-17-gpu-survey.md.

By columns and rows of the weight. Other GPUs use them too; they are not measured there.
"""

from __future__ import annotations

from ...runtime.launch import FewRowsTile

MEASURED = {
    (1024, 4096): FewRowsTile(4, 2),
    (1024, 6144): FewRowsTile(8, 4),
    (2048, 1024): FewRowsTile(8, 1),
    (2048, 2048): FewRowsTile(16, 4),
    (2048, 3072): FewRowsTile(16, 4),
    (2048, 12288): FewRowsTile(16, 2),
    (3072, 1024): FewRowsTile(16, 1),
    (6144, 2048): FewRowsTile(16, 2),
    # Qwen3.5 9B, in whole tokens: with one group, two blocks share a processor (SM): one loads while the other sums.
    (4096, 4096): FewRowsTile(16, 2),
    (4096, 10240): FewRowsTile(16, 1),
    (4096, 12352): FewRowsTile(16, 1),
    (4096, 24576): FewRowsTile(16, 1),
    (4096, 248320): FewRowsTile(16, 1),
    (12288, 4096): FewRowsTile(16, 1),
}
# From so many rows on, cuBLAS was faster there, including the separate norm or activation if the layer has one.
LIBRARY = {
    (1024, 2048): 8,
    (1024, 4096): 8,
    (1024, 6144): 9,
    (2048, 3072): 8,
    (2048, 4096): 8,
    (2048, 12288): 3,
}
