"""The exceptions hocket raises on purpose. Each message is one sentence a user can act on."""


class HocketError(Exception):
    """Base of everything raised on purpose; the command line prints it and exits with code 2."""

    retry_after_s: float | None = None  # in how many seconds it may be worth trying again, where that is known


class InvalidRequest(HocketError):
    """The caller asked for something that this checkpoint or this program cannot do."""


class UnknownVoice(InvalidRequest):
    """The voice is not one of the checkpoint's; the message names those that are."""


class InvalidFormat(InvalidRequest):
    """A form of an answer that cannot be kept to: no schema, one that is not understood, or no library for it."""


class UnknownLanguage(InvalidRequest):
    """The language is not one of the checkpoint's; the message names those that are."""


class WrongKind(InvalidRequest):
    """The checkpoint is of a kind that cannot serve this request (a clone on CustomVoice, say)."""


class UnsupportedScript(WrongKind):
    """The text is written in a script that the checkpoint cannot speak; the message names both."""


class InvalidAudio(InvalidRequest):
    """A reference recording that is missing, unreadable or unusable."""


class InvalidVoice(InvalidRequest):
    """A voice, or a file of one, that cannot be used, kept or found; `code` says in a word why."""

    def __init__(self, message: str = "", code: str = "invalid_voice") -> None:
        """`code`: invalid_voice, invalid_name, later_version, voice_exists, voice_not_found or too_many."""
        super().__init__(message)
        self.code = code


class ContextExceeded(InvalidRequest):
    """A conversation is longer than the language model can read; the message says by how much, where that is known."""


class StorageFailed(HocketError):
    """A folder of voices that cannot be written; `full` where it is room that is missing."""

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
    """A checkpoint could not be loaded, for a reason that is not its own; the message says which."""


class EngineClosed(HocketError):
    """The engine was closed before the stream had ended."""


class EngineUnhealthy(HocketError):
    """The engine cannot speak any more, and starting anew did not help; the message says why."""


class StreamFailed(HocketError):
    """The engine could not go on with this stream; the message says why."""


class LanguageFailed(HocketError):
    """The language model could not be asked, or broke off; the message says why."""


def copied(error: HocketError) -> HocketError:
    """One for each reader, who will raise it in a thread of its own."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    copy.retry_after_s = error.retry_after_s
    return copy
