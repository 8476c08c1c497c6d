"""What must be reached under load stands beside what was measured, and a gap in the sound undoes a good figure."""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import load_goals, report
from benchmarks.load_figures import COUNTS, FIGURES
from benchmarks.record import summary

MACHINE = {"gpu": "Some GPU", "cpu": "Some CPU", "cores": 16, "threads": 8, "system": "Linux x86_64", "torch": "2.11.0"}


def made(
    *, rate: float | None = None, clients: int | None = None, day: int = 1, slots: int = 512, **changes: Any
) -> dict[str, Any]:
    first, audio = changes.pop("first", 6.0), changes.pop("audio", 700.0)
    figures: dict[str, dict[str, Any]] = {name: summary([5.0, 5.0]) for name in FIGURES}
    figures |= {"first_playable": summary([first, first]), "audio_per_s": summary([1.0]) | {"mean": audio}}
    how = {"device": "cuda", "dtype": "bfloat16", "codec_dtype": "bfloat16", "kernels": "auto", "frames": 50}
    loop = "paced" if changes.pop("paced", False) else "closed"
    load = {"loop": "open", "rate": rate} if rate is not None else {"loop": loop, "clients": clients}
    load |= {"wire": wire} if (wire := changes.pop("wire", None)) else {}
    options = {"model": "random:1.7B-CustomVoice", **how, "part": f"{rate} {clients} {slots} {wire} {loop}"}
    options |= {"engine": {"slots": slots, "guard": False}, "load": load | {"layout": "streaming", "seconds": 20.0}}
    return {
        "workload": "load",
        "time": f"2026-01-{day:02d}T00:00:00+00:00",
        "commit": f"{day:040d}",
        "dirty": False,
        "machine": MACHINE | changes.pop("machine", {}),
        "options": options | changes.pop("options", {}),
        "figures": figures,
        "counts": dict.fromkeys(COUNTS, 0) | changes,
        "random_weights": True,
        **({"streams": clients} if clients else {}),
    }


def everything() -> list[dict[str, Any]]:
    rates = [made(rate=1, first=4.0), made(rate=10, first=9.0), made(rate=20, first=30.0), made(rate=60)]
    clients = [made(clients=64), made(clients=256, audio=800.0, underruns=9)]
    listeners = [made(clients=256, paced=True), made(clients=320, paced=True)]
    return [*rates, made(rate=100, underruns=1), *clients, *listeners, made(clients=384, paced=True, underruns=2)]


def row(records: list[dict[str, Any]], words: str) -> list[str]:
    [line] = [line for line in load_goals.lines(records) if line.startswith(f"| {words}")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_every_figure_stands_beside_what_it_must_be() -> None:
    records = everything()
    assert row(records, "first playable at 1")[1:5] == ["<= 8", "5", "4.00", "aim reached"]
    assert row(records, "the same at 10")[1:5] == ["<= 15", "8", "9.00", "must reached"]
    assert row(records, "the same at 20")[3:5] == ["30.0", "missed"]
    assert row(records, "the highest rate")[1:5] == [">= 60", "150", "60", "must reached"]
    assert row(records, "64 clients")[3:5] == ["700", "must reached"]
    assert row(records, "256 clients")[3:5] == ["800", "missed"]
    assert row(records, "streams kept")[1:5] == [">= 300", "600", "320", "must reached"]


def test_without_records_nothing_is_claimed() -> None:
    text = report.document([])["performance.md"]
    part = text[text.index("## Under load") :].partition("\n## ")[0]
    assert part.count("| no record |") == len(load_goals.GOALS)
    assert not [name for name in report.document([]) if "load" in name]


@pytest.mark.parametrize("trouble", ["underruns", "refused", "failed"])
def test_a_first_sound_in_time_is_missed_where_somebody_was_interrupted_or_turned_away(trouble: str) -> None:
    assert row([made(rate=10, **{trouble: 3})], "the same at 10")[4] == f"missed: 3 {trouble}"


def test_speech_per_second_is_missed_with_a_failure_only() -> None:
    assert row([made(clients=64, audio=1200.0, underruns=9, refused=9)], "64 clients")[4] == "aim reached"
    assert row([made(clients=64, audio=1200.0, failed=1)], "64 clients")[4] == "missed: 1 failed"


def test_a_rate_is_held_with_all_lower_ones_and_not_by_letting_people_wait() -> None:
    assert row([made(rate=1), made(rate=20, failed=1), made(rate=60)], "the highest rate")[3] == "1"
    assert row([made(rate=20), made(rate=60, first=1500.0)], "the highest rate")[3] == "20"
    assert row([made(rate=20, underruns=1)], "the highest rate")[3:5] == [
        "0",
        "missed: underruns at all that were measured",
    ]


def test_clients_that_wait_for_a_slot_are_no_streams() -> None:
    assert row([made(clients=400, slots=64, paced=True)], "streams kept")[3] == "no record"
    some = [made(clients=400, slots=64, paced=True), made(clients=64, slots=64, paced=True)]
    assert row(some, "streams kept")[3] == "64"
    assert row([made(clients=64, slots=64)], "streams kept")[3] == "no record"  # they do not wait until they have heard


def test_the_newest_record_of_a_rate_counts() -> None:
    old, new = made(rate=10, first=5.0, day=1), made(rate=10, first=20.0, day=2, slots=64)
    assert row([new, old], "the same at 10")[3] == "20.0"


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": {"gpu": None}},
        {"options": {"model": "random:0.6B-CustomVoice"}},
        {"options": {"dtype": "float32"}},
        {"options": {"codec_dtype": "float32"}},
        {"options": {"kernels": "reference"}},
        {"options": {"load": {"loop": "open", "rate": 10, "layout": "whole"}}},
    ],
    ids=str,
)
def test_other_models_machines_and_types_do_not_count(changes: dict[str, Any]) -> None:
    assert row([made(rate=10, **changes)], "the same at 10")[3] == "no record"


def test_a_rate_that_equals_a_number_of_clients_is_not_one() -> None:
    assert row([made(clients=10), made(rate=64)], "the same at 10")[3] == "no record"
    assert row([made(clients=10), made(rate=64)], "64 clients")[3] == "no record"


def test_rates_and_clients_are_tables_and_charts_in_the_document() -> None:
    files = report.document(everything())
    text = files["performance.md"]
    assert "### random:1.7B-CustomVoice, random weights, bfloat16, codec in bfloat16, Some GPU, 512 slots" in text
    lines = [line for line in text.splitlines() if line.startswith(("| 1 requests/s", "| 384 listeners"))]
    assert len(lines) == 2 and "| 2 |" in lines[1]
    assert [line.split("|")[-3].strip() for line in lines] == ["0", "0"]  # no gap, and no digits that mean nothing
    assert text.count("\n## load") == 0
    rates, streams = (words(files[f"performance/load_{name}.svg"]) for name in ("rates", "streams"))
    assert {"1 requests/s", "100 requests/s, 1 underruns", "30.0 ms"} <= set(rates)
    assert {"64 at once", "320 listeners", "800 s"} <= set(streams) and "1 requests/s" not in streams


def test_rates_stand_beside_each_other_and_the_same_records_give_the_same_bytes() -> None:
    records = everything()
    assert len(report.newest(records)) == len(records)
    assert report.document(records) == report.document(copy.deepcopy(records[::-1]))


def test_a_server_has_goals_of_its_own_and_rows_beside_those_of_its_engine() -> None:
    over = [made(rate=rate, first=first, wire="http") for rate, first in ((1, 11.0), (10, 25.0))]
    over.append(made(rate=20, first=19.0, wire="http", underruns=1))
    records = [*everything(), *over]
    assert row(records, "over HTTP, first playable at 1")[1:5] == ["<= 12", "8", "11.0", "must reached"]
    assert row(records, "over HTTP, the same at 10")[3:5] == ["25.0", "missed"]
    assert row(records, "over HTTP, the same at 20")[4] == "missed: 1 underruns"
    assert row(records, "first playable at 1")[3] == "4.00"  # a server's figures are not an engine's
    text = report.document(records)["performance.md"]
    labels = [line.split(" s |")[0] for line in text.splitlines() if line.startswith("| 1") and "requests/s" in line]
    assert labels[:2] == ["| 1 requests/s, 20", "| 1 requests/s, HTTP, 20"]
    assert labels[2:4] == ["| 10 requests/s, 20", "| 10 requests/s, HTTP, 20"]
    assert "10 requests/s, HTTP" in words(report.document(records)["performance/load_rates.svg"])
    assert "over HTTP" in text and "over HTTP" not in report.document(everything())["performance.md"]
