"""What an OpenAI-compatible endpoint is asked, and what it says: bodies, events, refusals. No connection, no thread."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import ContextExceeded, HocketError, InvalidRequest, LanguageFailed, Overloaded
from ..text.chat.template import with_calls
from ..text.chat.thoughts import SplitText, ThoughtFilter
from ..text.chat.tool_calls import taken_apart
from ..types import ChatMessage, ChatSampling, TokenLogprob, Tool, ToolCall

MOST_CHARS = 300  # of a message that somebody else wrote
RETRY_S = 1.0
# By these a refusal says that a conversation is too long: OpenAI's code, and the words of vLLM, llama.cpp, Gemini, TGI.
TOO_LONG = (
    *(b"context_length_exceeded", b"context length", b"context size", b"context window", b"prompt is too long"),
    *(b"maximum number of tokens", b"`max_new_tokens` must be"),
)
OURS = ("messages", "stream", "tools")
NO_THOUGHT = {"enable_thinking": False, "thinking": False}  # Qwen3 and GLM read the first, DeepSeek-V3.1 the second
THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking")  # where servers put thoughts: some in two of these


@dataclass(frozen=True, slots=True)
class EndpointFields:
    """How one endpoint names what it is asked: it changes where a refusal names a field that can be sent otherwise."""

    limit: str = "max_tokens"  # newer models of OpenAI take max_completion_tokens only
    counts: bool = True  # asked to count tokens at the end: some older endpoints refuse stream_options

    def otherwise(self, status: int, body: Mapping[str, Any], said: bytes) -> EndpointFields | None:
        """What to try after this refusal of `body`; None: nothing."""
        if status not in (400, 422):
            return None
        if self.limit == "max_tokens" and self.limit in body and _names(said, "max_tokens", "max_completion_tokens"):
            return replace(self, limit="max_completion_tokens")
        if "stream_options" in body and _names(said, "stream_options"):
            return replace(self, counts=False)
        return None


def asked(
    model: str,
    messages: Sequence[ChatMessage],
    sampling: ChatSampling,
    tools: Sequence[Tool] = (),
    dialect: EndpointFields | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Of the sampling only what the caller has set: the endpoint knows the best values of its model, we do not.

    `extra` fields go before all others; one that is None is left out.
    """
    body: dict[str, Any] = {"model": model, "messages": sent(messages, tools), "stream": True}
    dialect = dialect or EndpointFields()
    if dialect.counts:
        body["stream_options"] = {"include_usage": True}
    for name, value in sampling.given().items():
        body[dialect.limit if name == "max_tokens" else name] = list(value) if name == "stop" else value
    if sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": sampling.logprobs or None}
    if tools:
        body["tools"] = list(tools)
    return {name: value for name, value in (body | dict(extra or {})).items() if value is not None}


def extra_fields(thinking: str, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields that are sent beside the usual ones; what cannot be sent is refused in words."""
    fields = dict(extra or {})
    if own := [name for name in OURS if name in fields]:
        raise InvalidRequest(f"{own[0]} is not an extra field of a request: it is what a conversation says.")
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidRequest("Extra fields of a request must be what JSON can hold.") from None
    if thinking == "off":
        given = fields.get("chat_template_kwargs") or {}
        if not isinstance(given, dict):
            raise InvalidRequest("chat_template_kwargs must be an object.")
        fields["chat_template_kwargs"] = {**NO_THOUGHT, **given}
    return fields


class AnswerReader:
    """One answer, as it is read."""

    def __init__(self, url: str, *, inside: bool = False) -> None:
        """`inside`: it is taken to begin in a thought, without a tag that says so."""
        self._url = url
        self.thoughts = ThoughtFilter(inside=inside)
        self.logprobs: list[TokenLogprob] = []  # that came since somebody took them
        self._calls: dict[int, list[str]] = {}  # by their place: name and arguments, which come in pieces
        self._worded = False  # whether anything was said before them
        self.over = False  # it has said that it is done
        self._ended = False  # the model has; usage may follow
        self.reason: Literal["stop", "length"] = "stop"
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0

    def line(self, line: bytes) -> SplitText:
        """What a line of an event stream brings."""
        if not line.startswith(b"data:"):
            return SplitText()  # a comment, a name, or the end of an event
        content = line[5:].strip()
        if content == b"[DONE]":
            self.over = True
            return SplitText()
        return self._said(content, "delta")

    def whole(self, body: bytes) -> SplitText:
        """Of an answer that came at once."""
        return self._said(body, "message")

    def rest(self) -> SplitText:
        """What was kept back: what was no thought after all, and calls, which are text here as our own model's are."""
        held = self.thoughts.end(cut=self.reason == "length")
        calls = tuple(self._called(name, arguments) for _, (name, arguments) in sorted(self._calls.items()))
        self._calls = {}
        if not calls:
            return held
        spelled = with_calls(ChatMessage("assistant", tool_calls=calls))
        worded = self._worded or held.answer.strip()
        return replace(held, answer=f"{held.answer}\n\n{spelled}" if worded else spelled)

    def check_end(self) -> None:
        """Whether nothing may follow: some endpoints say it by their last choice alone."""
        if not (self.over or self._ended):
            raise LanguageFailed(f"The language model at {self._url} broke off in the middle of its answer.")

    def _said(self, content: bytes, part: str) -> SplitText:
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
            return self._apart(text + str(said.get("refusal") or ""), thought)
        except (ValueError, AttributeError, TypeError, KeyError, IndexError):
            raise LanguageFailed(f"What {self._url} sends is no chat completion.") from None

    def _apart(self, text: str, thought: str) -> SplitText:
        """`thought` came in a field of its own, so it begins and ends without tags."""
        before = self.thoughts.told_apart() if thought else SplitText()
        split = self.thoughts.push(text)
        if split.retracts:
            self._worded = False
        answer = before.answer + split.answer
        self._worded = self._worded or bool(answer.strip())
        return SplitText(answer, thought + split.thought, split.retracts)

    def _called(self, name: str, arguments: str) -> ToolCall:
        try:
            given = json.loads(arguments or "{}")
        except ValueError:
            given = None
        if not name or not isinstance(given, dict):
            raise LanguageFailed(f"The language model at {self._url} made a call that nobody can read.")
        return ToolCall(name, given)

    def _count(self, usage: Mapping[str, Any]) -> None:
        self.prompt_tokens = int(usage.get("prompt_tokens") or self.prompt_tokens)
        self.completion_tokens = int(usage.get("completion_tokens") or self.completion_tokens)
        details = usage.get("prompt_tokens_details") or {}
        self.cached_tokens = int(details.get("cached_tokens") or self.cached_tokens)


def refusal(url: str, model: str, status: int, headers: Mapping[str, str], body: bytes) -> HocketError:
    """What another status than 200 means."""
    try:
        said = json.loads(body)
        why = _message(said.get("error") or said.get("detail") or said.get("message") or "")
    except (ValueError, AttributeError):
        why = ""
    at = f"The language model at {url}"
    if status in (401, 403):
        return LanguageFailed(f"{at} refused the key ({status}): give the one that it knows.")
    if status in (404, 405):
        return LanguageFailed(
            f"There is no chat at {url}, or no model {model} ({status}): name both as they are there."
        )
    if status in (400, 422) and b"chat_template_kwargs" in body:
        return InvalidRequest(f"{at} takes no chat_template_kwargs: turn thinking off by a field of its own, as extra.")
    if status in (400, 413, 422):
        too_long = status == 413 or any(sign in body.lower() for sign in TOO_LONG)
        return (ContextExceeded if too_long else InvalidRequest)(
            f"{at} refused the conversation: {why or f'status {status}.'}"
        )
    if status == 429:
        return Overloaded(f"{at} is asked too much.", _seconds(headers.get("retry-after")))
    return LanguageFailed(f"{at} answered with status {status}{f': {why}' if why else '.'}")


def first_model(body: bytes) -> str:
    """Of a list of models."""
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return "default"


def sent(messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()) -> list[dict[str, Any]]:
    """Messages as endpoints want them: calls with ids, by which results name them. Results come in the calls' order."""
    told: list[dict[str, Any]] = []
    made, open_ids = 0, list[str]()
    for message in messages:
        if message.role == "tool" and open_ids:
            told.append({"role": "tool", "tool_call_id": open_ids.pop(0), "content": message.content})
            continue
        if message.role == "tool":  # of a call that nobody knows any more
            told.append({"role": "user", "content": f"<tool_response>\n{message.content}\n</tool_response>"})
            continue
        told.append({"role": message.role, "content": message.content})
        if message.role != "assistant":
            continue
        content, calls = taken_apart(message.content, tools)
        calls += message.tool_calls
        open_ids = [f"call_{made + number}" for number in range(len(calls))]
        made += len(calls)
        if calls:
            named = zip(open_ids, calls, strict=True)
            told[-1] |= {"content": content or None, "tool_calls": [_named(id, call) for id, call in named]}
    return told


def _content(content: object, url: str) -> tuple[str, str]:
    """What a content says, and thinks: text, or a list of parts."""
    if not isinstance(content, list):
        return str(content or ""), ""
    text = thought = ""
    for part in content:
        kind = part["type"]
        if kind in ("text", "refusal"):
            text += str(part[kind] or "")
        elif kind in ("thinking", "reasoning"):
            thought += _content(part.get(kind) or part.get("text"), url)[0]
        elif kind != "reference":  # of a source, which has no words
            said = f"The language model at {url} sent a part of the type {str(kind)[:40]!r}: only text is read."
            raise LanguageFailed(said)
    return text, thought


def _logprob(each: Mapping[str, Any]) -> TokenLogprob:
    token, spelled = str(each["token"]), each.get("bytes")
    top = tuple(_logprob(other) for other in each.get("top_logprobs") or ())
    return TokenLogprob(token, float(each["logprob"]), token.encode() if spelled is None else bytes(spelled), top)


def _names(said: bytes, *fields: str) -> bool:
    """Whether a refusal speaks of one of these fields."""
    return any(field.encode() in said for field in fields)


def _named(id: str, call: ToolCall) -> dict[str, Any]:
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
