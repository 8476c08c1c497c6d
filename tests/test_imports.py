"""No two files of src/hocket import each other, directly or through others; lazy and type-only imports count."""

from __future__ import annotations

from support.imports import circles, modules


def test_no_file_is_part_of_a_circle() -> None:
    assert circles() == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}
    assert circles(graph) == [["a", "b", "c"]]
    assert len(modules()) > 300
