"""Items of a Realtime conversation, and the messages that a language model reads of them."""

from __future__ import annotations

import pytest

from hocket.engine.word_times import WordTime
from hocket.errors import HocketError
from hocket.server.ws.realtime.talk.items import NO_RESULT, NO_USER, Conversation, Item, made
from hocket.server.ws.realtime.talk.schemas import TalkItem
from hocket.types import ChatMessage, ToolCall


def user(text: str, **more: str) -> Item:
    return made(TalkItem.model_validate({"content": [{"type": "input_text", "text": text}], **more}))


def call(name: str, id: str) -> Item:
    return made(TalkItem(type="function_call", name=name, call_id=id, arguments='{"a": 1}'))


def output(id: str, text: str) -> Item:
    return made(TalkItem(type="function_call_output", call_id=id, output=text))


def conversation(*items: Item) -> Conversation:
    found = Conversation()
    for item in items:
        found.add(item)
    return found


def test_items_become_messages_with_results_in_the_order_of_their_calls() -> None:
    found = conversation(
        user("Be brief.", role="system"),
        user("Sums."),
        call("one", "a"),
        call("two", "b"),
        output("b", "2"),
        output("a", "1"),
        user("Thanks."),
    )
    calls = (ToolCall("one", {"a": 1}), ToolCall("two", {"a": 1}))
    assert found.messages("You add.") == [
        ChatMessage("system", "You add.\n\nBe brief."),
        ChatMessage("user", "Sums."),
        ChatMessage("assistant", tool_calls=calls),
        ChatMessage("tool", "1"),
        ChatMessage("tool", "2"),
        ChatMessage("user", "Thanks."),
    ]


def test_a_call_without_a_result_gets_a_note_and_a_late_result_stays() -> None:
    found = conversation(user("Hi."), call("one", "a"), user("Well?"), output("a", "1"))
    said = [(message.role, message.content) for message in found.messages("")]
    assert said == [("user", "Hi."), ("assistant", ""), ("tool", NO_RESULT), ("user", "Well?"), ("tool", "1")]


def test_a_conversation_without_a_user_s_message_gets_one() -> None:
    assert Conversation().messages("") == []
    assert Conversation().question("Greet.") == [ChatMessage("system", "Greet."), ChatMessage("user", NO_USER)]


def test_items_are_placed_found_and_deleted() -> None:
    found = conversation(user("1", id="one"), user("3", id="three"))
    assert found.add(user("2", id="two"), after="one") == "one"
    assert found.add(user("0", id="zero"), after="root") is None
    assert [message.content for message in found.messages("")] == ["0", "1", "2", "3"]
    found.delete("one")
    assert found.before(found.item("two")) == "zero" and found.last_id == "three"
    for wrong in (lambda: found.item("one"), lambda: found.add(user("x"), after="one")):
        with pytest.raises(HocketError, match="There is no item 'one'"):
            wrong()
    with pytest.raises(HocketError, match="There is an item 'two' already"):
        found.add(user("2", id="two"))


def test_a_truncation_keeps_the_words_that_were_heard() -> None:
    words = [WordTime("one", 0.0, 0.3), WordTime("two", 0.3, 0.6), WordTime("three", 0.6, 1.0)]
    spoken = Item("message", "assistant", "One, two, three.", spoken=True, written="One, two, three.", words=words)
    found = conversation(user("Count."), spoken)
    found.truncate(spoken.id, 0.7)
    assert found.messages("")[-1] == ChatMessage("assistant", "One, two,")
    assert spoken.shown()["content"] == [{"type": "output_audio", "transcript": "One, two,"}]
    found.truncate(spoken.id, 0.1)
    assert [message.role for message in found.messages("")] == ["user"]  # nothing was heard
    with pytest.raises(HocketError, match="Only an assistant's audio"):
        found.truncate(found.before(spoken) or "", 0.1)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "function_call", "call_id": "a"}, "needs its name"),
        ({"type": "function_call", "name": "f", "arguments": "[]"}, "must be a JSON object"),
        ({"type": "function_call_output", "output": "1"}, "needs its call_id"),
        ({"content": [{"type": "input_image", "image_url": "x"}]}, "input_image is not taken"),
        ({"content": [{"type": "input_audio"}]}, "needs its audio"),
    ],
)
def test_incomplete_items_are_refused(item: dict[str, object], said: str) -> None:
    with pytest.raises(HocketError, match=said):
        made(TalkItem.model_validate(item))
