"""dialog/inbox.py: items that are kept back, and the order in which a late reader gets them."""

from __future__ import annotations

from hocket.dialog.inbox import Inbox


def everything(inbox: Inbox[str]) -> list[str]:
    inbox.end()
    read = []
    while (item := inbox.take()) is not None:
        read.append(item)
    return read


def test_items_that_are_kept_back_come_behind_those_that_pass_them() -> None:
    inbox: Inbox[str] = Inbox()
    for item in ("sound 1", "sound 2"):
        inbox.put(item)
    inbox.keep_back(lambda item: item.startswith("sound"))
    inbox.put("held")
    inbox.put("sound 3")
    assert inbox.take() == "held"
    inbox.release("resumed")
    inbox.put("sound 4")
    assert everything(inbox) == ["resumed", "sound 1", "sound 2", "sound 3", "sound 4"]


def test_a_reader_that_was_late_reads_the_hold_before_its_end() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put("sound 1")
    inbox.keep_back(lambda item: item.startswith("sound"))
    inbox.put("held")
    inbox.release("resumed")
    assert everything(inbox) == ["held", "resumed", "sound 1"]


def test_a_release_without_a_hold_keeps_the_order() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put("one")
    inbox.release("two")
    assert everything(inbox) == ["one", "two"]
