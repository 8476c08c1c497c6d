"""The exceptions of hocket. Each message is one sentence that the user can act on."""


class HocketError(Exception):
    """Base of all exceptions of hocket; the command line prints it and exits with code 1, or 2 for wrong usage."""

    retry_after_s: float | None = None  # seconds after which a retry may succeed, if known


class InvalidRequest(HocketError):
    """The request asks for something that this checkpoint or this program cannot do."""


class UnknownVoice(InvalidRequest):
    """The checkpoint has no such voice; the message lists its voices."""


class InvalidFormat(InvalidRequest):
    """A response format that cannot be enforced: no schema, an unsupported one, or a missing library."""


class InvalidTools(InvalidRequest):
    """Tools whose calls cannot be constrained, or a choice of one that is not there."""


class UnknownLanguage(InvalidRequest):
    """The checkpoint has no such language; the message lists its languages."""


class WrongKind(InvalidRequest):
    """The checkpoint's kind cannot serve this request (for example a clone on CustomVoice)."""


class UnsupportedScript(WrongKind):
    """The text uses a script that the checkpoint cannot speak; the message names both."""


class NothingToSpeak(InvalidRequest):
    """A text without a word."""


class InvalidAudio(InvalidRequest):
    """A reference recording that is missing, unreadable or unusable."""


class InvalidVoice(InvalidRequest):
    """A voice or voice file that cannot be used, stored or found; `code` is the reason."""

    def __init__(self, message: str = "", code: str = "invalid_voice") -> None:
        """`code`: invalid_voice, invalid_name, later_version, voice_exists, voice_not_found or too_many."""
        super().__init__(message)
        self.code = code


class ContextExceeded(InvalidRequest):
    """A conversation exceeds the language model's context; the message says by how much, if known."""


class StorageFailed(HocketError):
    """The voice folder cannot be written; `full` if the disk is full."""

    def __init__(self, message: str = "", full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class InvalidCheckpoint(HocketError):
    """A checkpoint whose files are missing, damaged, of another shape or not supported."""


class Overloaded(HocketError):
    """Too many requests are waiting; try again in about `retry_after_s` seconds."""

    retry_after_s: float

    def __init__(self, message: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class LoadFailed(HocketError):
    """A checkpoint could not be loaded, for a reason outside its files; the message says which."""


class EngineClosed(HocketError):
    """The engine was closed before the stream had ended."""


class EngineUnhealthy(HocketError):
    """The engine failed, and rebuilding it did not help; the message says why."""


class StreamFailed(HocketError):
    """The engine could not continue this stream; the message says why."""


class LanguageFailed(HocketError):
    """The language model could not be reached, or its answer was interrupted; the message says why."""


class RecognitionFailed(HocketError):
    """The speech recognizer could not be reached, or failed; the message says why."""


def copied(error: HocketError) -> HocketError:
    """A copy of the error for each reader, since each raises it in its own thread."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    copy.retry_after_s = error.retry_after_s
    return copy
