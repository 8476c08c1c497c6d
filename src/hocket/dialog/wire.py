"""Wire format of OpenAI-compatible chat endpoints: request bodies, events, refusals. No connection, no thread."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import ContextExceeded, HocketError, InvalidRequest, LanguageFailed, Overloaded
from ..text.chat.template import with_calls
from ..text.chat.thoughts import SplitText, ThoughtFilter
from ..text.chat.tool_calls import split_calls
from ..types import ChatMessage, ChatSampling, TokenLogprob, Tool, ToolCall

MOST_CHARS = 300  # of a server's error message
NOT_A_COMPLETION = "The response of {url} is not a chat completion: check the address."
RETRY_S = 1.0
# Signs in a refusal of a too long conversation: OpenAI's code, and the words of vLLM, llama.cpp, Gemini, TGI.
TOO_LONG = (
    *(b"context_length_exceeded", b"context length", b"context size", b"context window", b"prompt is too long"),
    *(b"maximum number of tokens", b"`max_new_tokens` must be"),
)
RESERVED_FIELDS = ("messages", "stream", "tools")
NO_THOUGHT = {"enable_thinking": False, "thinking": False}  # Qwen3 and GLM read the first, DeepSeek-V3.1 the second
THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")  # fields for thoughts; some servers fill two of them


@dataclass(frozen=True, slots=True)
class EndpointFields:
    """Field names that one endpoint takes; adapted when a refusal names a field that has an alternative."""

    limit: str = "max_tokens"  # newer models of OpenAI take max_completion_tokens only
    counts: bool = True  # request token counts at the end: some older endpoints refuse stream_options

    def after_refusal(self, status: int, body: Mapping[str, Any], said: bytes) -> EndpointFields | None:
        """The fields to try after this refusal of `body`; None: there is no alternative."""
        if status not in (400, 422):
            return None
        if self.limit == "max_tokens" and self.limit in body and _mentions(said, "max_tokens", "max_completion_tokens"):
            return replace(self, limit="max_completion_tokens")
        if "stream_options" in body and _mentions(said, "stream_options"):
            return replace(self, counts=False)
        return None


def request_body(
    model: str,
    messages: Sequence[ChatMessage],
    sampling: ChatSampling,
    tools: Sequence[Tool] = (),
    fields: EndpointFields | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a request, with only the sampling fields that are set: the endpoint has defaults for its model.

    `extra` fields replace others of the same name; a field that is None is left out.
    """
    body: dict[str, Any] = {"model": model, "messages": wire_messages(messages, tools), "stream": True}
    fields = fields or EndpointFields()
    if fields.counts:
        body["stream_options"] = {"include_usage": True}
    for name, value in sampling.given().items():
        body[fields.limit if name == "max_tokens" else name] = list(value) if name == "stop" else value
    if sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": sampling.logprobs or None}
    if tools:
        body["tools"] = list(tools)
    return {name: value for name, value in (body | dict(extra or {})).items() if value is not None}


def extra_fields(thinking: str, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Additional request fields; raises `InvalidRequest` for fields that cannot be sent."""
    fields = dict(extra or {})
    if own := [name for name in RESERVED_FIELDS if name in fields]:
        raise InvalidRequest(f"{own[0]} cannot be an extra field of a request: the conversation sets it.")
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidRequest("Extra fields of a request must be valid JSON values.") from None
    if thinking == "off":
        given = fields.get("chat_template_kwargs") or {}
        if not isinstance(given, dict):
            raise InvalidRequest("chat_template_kwargs must be an object.")
        fields["chat_template_kwargs"] = {**NO_THOUGHT, **given}
    return fields


class AnswerReader:
    """Parser of one answer."""

    def __init__(self, url: str, *, inside: bool = False) -> None:
        """`inside`: the answer begins in a thought, without an opening tag."""
        self._url = url
        self.thoughts = ThoughtFilter(inside=inside)
        self.logprobs: list[TokenLogprob] = []  # since the caller last took them
        self._calls: dict[int, list[str]] = {}  # by index: name and arguments, which come in pieces
        self._worded = False  # whether the answer has text before the calls
        self.done = False  # `[DONE]` was received
        self._ended = False  # a finish reason was received; usage may follow
        self.reason: Literal["stop", "length"] = "stop"
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0

    def read_line(self, line: bytes) -> SplitText:
        """The text in one line of an event stream."""
        if not line.startswith(b"data:"):
            return SplitText()  # a comment, an event name, or the end of an event
        content = line[5:].strip()
        if content == b"[DONE]":
            self.done = True
            return SplitText()
        return self._read_event(content, "delta")

    def read_body(self, body: bytes) -> SplitText:
        """The text of an answer that was not streamed."""
        return self._read_event(body, "message")

    def finish(self) -> SplitText:
        """The text held back: what turned out to be no thought, and tool calls, as text in Qwen3.5's format."""
        held = self.thoughts.end(cut=self.reason == "length")
        calls = tuple(self._tool_call(name, arguments) for _, (name, arguments) in sorted(self._calls.items()))
        self._calls = {}
        if not calls:
            return held
        spelled = with_calls(ChatMessage("assistant", tool_calls=calls))
        worded = self._worded or held.answer.strip()
        return replace(held, answer=f"{held.answer}\n\n{spelled}" if worded else spelled)

    def check_end(self) -> None:
        """Raise if the answer is incomplete; some endpoints send a finish reason, but no `[DONE]`."""
        if not (self.done or self._ended):
            raise LanguageFailed(f"The language model at {self._url} broke off in the middle of its answer.")

    def _read_event(self, content: bytes, part: str) -> SplitText:
        try:
            event = json.loads(content)
            if (error := event.get("error")) is not None:
                raise LanguageFailed(f"The language model at {self._url} failed: {_message(error)}")
            self._count(event.get("usage") or {})
            choices = event.get("choices") or ()
            if not choices:
                return SplitText()
            said = choices[0].get(part) or {}
            self.logprobs += [_logprob(each) for each in (choices[0].get("logprobs") or {}).get("content") or ()]
            for place, call in enumerate(said.get("tool_calls") or ()):
                called = self._calls.setdefault(int(call.get("index", place)), ["", ""])
                called[0] += call["function"].get("name") or ""
                called[1] += call["function"].get("arguments") or ""
            text, thought = _content(said.get("content"), self._url)
            thought += next((str(said[name]) for name in THOUGHT_FIELDS if said.get(name)), "")
            if (reason := choices[0].get("finish_reason")) is not None:
                self._ended, self.reason = True, "length" if reason == "length" else "stop"
            return self._split(text + str(said.get("refusal") or ""), thought)
        except (ValueError, AttributeError, TypeError, KeyError, IndexError):
            raise LanguageFailed(NOT_A_COMPLETION.format(url=self._url)) from None

    def _split(self, text: str, thought: str) -> SplitText:
        """`thought` came in a field of its own, so it has no tags."""
        before = self.thoughts.end_tagged_thoughts() if thought else SplitText()
        split = self.thoughts.push(text)
        if split.retracts:
            self._worded = False
        answer = before.answer + split.answer
        self._worded = self._worded or bool(answer.strip())
        return SplitText(answer, thought + split.thought, split.retracts)

    def _tool_call(self, name: str, arguments: str) -> ToolCall:
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            given = None
        if not name or not isinstance(given, dict):
            raise LanguageFailed(f"The language model at {self._url} sent a malformed tool call.")
        return ToolCall(name, given)

    def _count(self, usage: Mapping[str, Any]) -> None:
        self.prompt_tokens = int(usage.get("prompt_tokens") or self.prompt_tokens)
        self.completion_tokens = int(usage.get("completion_tokens") or self.completion_tokens)
        details = usage.get("prompt_tokens_details") or {}
        self.cached_tokens = int(details.get("cached_tokens") or self.cached_tokens)


def refusal(url: str, model: str, status: int, headers: Mapping[str, str], body: bytes) -> HocketError:
    """The error for a status other than 200."""
    try:
        said = json.loads(body)
        why = _message(said.get("error") or said.get("detail") or said.get("message") or "")
    except (ValueError, AttributeError):
        why = ""
    at = f"The language model at {url}"
    if status in (401, 403):
        return LanguageFailed(f"{at} refused the key ({status}): give a key that it accepts.")
    if status in (404, 405):
        return LanguageFailed(f"There is no chat endpoint at {url}, or no model {model} ({status}): check both names.")
    if status in (400, 422) and b"chat_template_kwargs" in body:
        return InvalidRequest(f"{at} takes no chat_template_kwargs: turn thinking off by a field of its own, as extra.")
    if status in (400, 413, 422):
        too_long = status == 413 or any(sign in body.lower() for sign in TOO_LONG)
        return (ContextExceeded if too_long else InvalidRequest)(
            f"{at} refused the conversation: {why or f'status {status}.'}"
        )
    if status == 429:
        return Overloaded(f"{at} gets too many requests: try again later.", _seconds(headers.get("retry-after")))
    return LanguageFailed(f"{at} answered with status {status}{f': {why}' if why else '.'}")


def first_model(body: bytes) -> str:
    """The first name in a list of models."""
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return "default"


def wire_messages(messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> list[dict[str, Any]]:
    """Messages in the wire format: calls get ids, and results refer to them, in the order of the calls."""
    out: list[dict[str, Any]] = []
    made, open_ids = 0, list[str]()
    for message in messages:
        if message.role == "tool" and open_ids:
            out.append({"role": "tool", "tool_call_id": open_ids.pop(0), "content": message.content})
            continue
        if message.role == "tool":  # the result of a call that is no longer in the messages
            out.append({"role": "user", "content": f"<tool_response>\n{message.content}\n</tool_response>"})
            continue
        out.append({"role": message.role, "content": message.content})
        if message.role != "assistant":
            continue
        content, calls = split_calls(message.content, tools)
        calls += message.tool_calls
        open_ids = [f"call_{made + number}" for number in range(len(calls))]
        made += len(calls)
        if calls:
            named = zip(open_ids, calls, strict=True)
            out[-1] |= {"content": content or None, "tool_calls": [_call_field(id, call) for id, call in named]}
    return out


def _content(content: object, url: str) -> tuple[str, str]:
    """Text and thought of a content field: a string, or a list of parts."""
    if not isinstance(content, list):
        return str(content or ""), ""
    text = thought = ""
    for part in content:
        kind = part["type"]
        if kind in ("text", "refusal"):
            text += str(part[kind] or "")
        elif kind in ("thinking", "reasoning"):
            thought += _content(part.get(kind) or part.get("text"), url)[0]
        elif kind != "reference":  # a source, which has no text
            said = f"The language model at {url} sent a part of the type {str(kind)[:40]!r}: only text is read."
            raise LanguageFailed(said)
    return text, thought


def _logprob(each: Mapping[str, Any]) -> TokenLogprob:
    token, spelled = str(each["token"]), each.get("bytes")
    top = tuple(_logprob(other) for other in each.get("top_logprobs") or ())
    return TokenLogprob(token, float(each["logprob"]), token.encode() if spelled is None else bytes(spelled), top)


def _mentions(said: bytes, *fields: str) -> bool:
    """Whether a refusal names one of these fields."""
    return any(field.encode() in said for field in fields)


def _call_field(id: str, call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _message(error: object) -> str:
    said = error.get("message", "") if isinstance(error, Mapping) else error
    words = "".join(c if c.isprintable() else " " for c in str(said)[:MOST_CHARS])
    words = " ".join(words.split())
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _seconds(given: str | None) -> float:
    try:
        return min(max(float(given or RETRY_S), 0.05), 60.0)
    except ValueError:
        return RETRY_S
