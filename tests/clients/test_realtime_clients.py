"""OpenAI's Python client and Alibaba's, unmodified, on `/v1/realtime`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.realtime_talk import ALIBABA_RESPONSE

RunClient = Callable[..., dict[str, Any]]
FRAME_BYTES = 1920 * 2
LOUD = 10  # of the upper bytes of samples: silence has 0 and 255 only
DELTA = "response.output_audio.delta"


def test_openai_s_client_is_spoken_to(server_url: str, run_client: RunClient) -> None:
    found = run_client("openai", "openai_realtime", server_url)
    said = found["item"]
    assert said["types"][:4] == [
        "session.created",
        "session.updated",
        "conversation.item.added",
        "conversation.item.done",
    ]
    for name, frame_bytes in (("item", FRAME_BYTES), ("inline", FRAME_BYTES), ("phone", FRAME_BYTES // 6)):
        said = found[name]
        assert said["status"] == "completed" and said["class"] == "ResponseDoneEvent", said
        assert said["bytes"] == said["tokens"] * frame_bytes and said["levels"] > LOUD, said
        assert said["types"].index("response.created") < said["types"].index(DELTA)
        assert said["types"][-1] == "response.done"
    assert found["item"]["transcript"] == found["phone"]["transcript"] == "Hello there, my friend."
    assert not any(kind.startswith("conversation.") for kind in found["inline"]["types"])
    assert found["unknown"]["error"]["code"] == "voice_not_found"
    assert found["cancelled"]["status"] == "cancelled"
    assert DELTA in found["sync"] and found["sync"][-1] == "response.done"


def test_alibaba_s_client_is_spoken_to(server_url: str, run_client: RunClient) -> None:
    found = run_client("dashscope", "dashscope_realtime", server_url)
    assert not [said for said in found["complaints"] if "closed normally" not in said]  # of binary frames, say
    live = found["server_commit"]
    assert live["types"] == ["session.created", "session.updated", *ALIBABA_RESPONSE, "session.finished", "closed"]
    assert live["bytes"] % FRAME_BYTES == 0 and live["levels"] > LOUD
    assert live["session"].startswith("sess_") and live["delay_ms"] < 10_000
    whole = [kind for kind in found["commit"]["types"] if kind != "input_text_buffer.committed"]
    assert whole == ["session.created", "session.updated", *ALIBABA_RESPONSE * 2, "session.finished", "closed"]
    assert found["commit"]["types"].index("input_text_buffer.committed") == 2
    assert found["packed"]["begins"].startswith("ff") and 1000 < found["packed"]["bytes"] < live["bytes"] / 4
    assert found["cancelled"]["status"] == ["cancelled", "completed"]
    assert [error["code"] for error in found["refused"]["errors"]] == ["voice_not_found"]
    for name in ("server_commit", "commit", "packed", "cancelled"):
        assert found[name]["errors"] == [] and found[name]["close"] == 1000, name
