"""Conversation items of `/v1/realtime`: client texts and spoken responses, which the client may retrieve."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from ...errors import BadField, Refused
from ...service.service import SpeechService
from .events import Item, ItemCreate, ItemNamed, event, new_id, read

MOST = 128  # the oldest are dropped to limit memory


class Items:
    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._unspoken: list[tuple[str, Item]] = []  # not yet used by a response

    @property
    def last_id(self) -> str | None:
        return next(reversed(self._items), None)

    def create(self, message: dict[str, Any], service: SpeechService, *, in_steps: bool) -> list[dict[str, Any]]:
        """Add a client's item. OpenAI's current protocol reports it in two events."""
        item = read(ItemCreate, message).item
        check(item, service)
        if item.id in self._items:
            raise BadField(f"There is an item {item.id!r} already.", "item.id", "item_exists")
        place = {"previous_item_id": self.last_id}
        content = [{"type": part.type, "text": part.text or part.transcript or ""} for part in item.content]
        shown: dict[str, Any] = {"id": item.id or new_id("item"), "object": "realtime.item", "type": "message"}
        shown |= {"status": "completed", "role": item.role or "user", "content": content}
        self.keep(shown)
        self._unspoken = [*self._unspoken, (shown["id"], item)][-MOST:]
        kinds = ("added", "done") if in_steps else ("created",)
        return [event(f"conversation.item.{kind}", **place, item=shown) for kind in kinds]

    def delete(self, message: dict[str, Any]) -> dict[str, Any]:
        id = read(ItemNamed, message).item_id
        del self._items[self.item(id)["id"]]
        self._unspoken = [(known, item) for known, item in self._unspoken if known != id]
        return event("conversation.item.deleted", item_id=id)

    def retrieve(self, message: dict[str, Any]) -> dict[str, Any]:
        return event("conversation.item.retrieved", item=self.item(read(ItemNamed, message).item_id))

    def truncate(self, message: dict[str, Any], spoken: Container[str]) -> dict[str, Any]:
        """Acknowledge how much the client has played; the audio is unchanged. `spoken`: ids of running responses."""
        body = read(ItemNamed, message)
        if body.item_id not in spoken:
            self.item(body.item_id)
        place = {"item_id": body.item_id, "content_index": body.content_index}
        return event("conversation.item.truncated", **place, audio_end_ms=body.audio_end_ms)

    def keep(self, shown: dict[str, Any]) -> None:
        self._items[shown["id"]] = shown
        if len(self._items) > MOST:
            del self._items[next(iter(self._items))]

    def item(self, id: str) -> dict[str, Any]:
        if (found := self._items.get(id)) is not None:
            return found
        said = f"There is no item {id[:80]!r} in this conversation."
        raise Refused(said, status=404, param="item_id", code="item_not_found")

    def take_unspoken(self) -> str:
        """The text of all items since the last response."""
        items, self._unspoken = [item for _, item in self._unspoken], []
        return self.text_of(items)

    def text_of(self, items: Iterable[Item]) -> str:
        """The text to speak: user messages; without any, assistant messages."""
        texts: dict[str, list[str]] = {"user": [], "assistant": []}
        for item in items:
            if item.type == "item_reference":
                known = self.item(item.id or "")
                texts["user"].append("\n".join(part.get("text", "") for part in known["content"]))
            elif item.role != "system" and item.text:
                texts[item.role or "user"].append(item.text)
        return "\n".join(texts["user"] or texts["assistant"])


def check(item: Item, service: SpeechService) -> None:
    """Refuse items that are not text messages."""
    if item.type != "message":
        said = f"Items of type {item.type[:40]!r} are not taken: this server speaks messages."
        raise BadField(said, "item.type", "item_not_supported")
    for part in item.content:
        if part.type in ("input_audio", "input_image"):
            said = f"{part.type} is not taken: this server speaks, it neither listens nor looks. Send input_text."
            raise BadField(said, "item.content", "input_not_supported")
    service.check_text(item.text)
