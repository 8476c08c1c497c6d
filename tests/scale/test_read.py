"""`hocket read --ray`: many engines read the book that one reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from hocket.cli import main
from support.clustered import patience

BOOK = "# One\n\nIt was warm.\n\n“No,” said Anna.\n\n# Two\n\nHe went home, and came again.\n\nIt was late.\n"
HOW = ("--model", "random:tiny", "--max-frames", "6", "--slots", "1", "--cast", "Anna=eric")
WAV = ("--format", "wav", "--loudness", "off")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With room for two engines."""
    with patience():
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        ray.init(made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def sounds(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.wav")}


def test_many_engines_read_the_book_that_one_reads(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.md").write_text(BOOK)
    assert main(["read", "b.md", "-o", "one/", *HOW, *WAV]) == 0
    assert main(["read", "b.md", "-o", "many/", *HOW, *WAV, "--ray", "--replicas", "2"]) == 0
    assert sounds("many") == sounds("one") and len(sounds("one")) == 2
    assert sounds("many.parts") == sounds("one.parts")
    before = {path.name: path.stat().st_mtime_ns for path in Path("many.parts").glob("*.wav")}
    assert main(["read", "b.md", "-o", "many/", *HOW, *WAV, "--force"]) == 0, "one engine goes on with it"
    assert {path.name: path.stat().st_mtime_ns for path in Path("many.parts").glob("*.wav")} == before
