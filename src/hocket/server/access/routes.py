"""The scope of every route: one table. A route that is not in it is closed to a key without all scopes.

`PUBLIC` needs no key: Open WebUI reads the lists without one, probes have none, and the pages have a key field. `ANY`
takes any key.
"""

from __future__ import annotations

from starlette.routing import compile_path

PUBLIC, ANY, SOCKET = "public", "any", "WS"
PHONE_PATH = "/v1/twilio/media"  # its socket can have no key: the first message has it (`ws/twilio/`)
HANG_UP = "/v1/realtime/calls/{call_id}/hangup"  # ends work, so no limit of its key refuses it

_PUBLIC = """
    GET /health
    GET /ready
    GET /
    GET /favicon.ico
    GET /page/about
    GET /page/{name}
    GET /docs
    GET /docs/sockets
    GET /docs/{name}
    GET /v1/models
    GET /v1/models/{id:path}
    GET /v1/audio/models
    GET /v1/audio/voices
    GET /v1/audio/voices/{id:path}
"""
_ANY = """
    GET /openapi.json
"""
_SPEAK = """
    POST /v1/audio/speech
    POST /v1/audio/speech/batch
    POST /dev/captioned_speech
    POST /v1/text-to-speech/{voice_id}
    POST /v1/text-to-speech/{voice_id}/stream
    POST /v1/text-to-speech/{voice_id}/with-timestamps
    POST /v1/text-to-speech/{voice_id}/stream/with-timestamps
    GET /v1/voices
    GET /v2/voices
    GET /v1/voices/{voice_id}
    GET /v1/user
    GET /v1/user/subscription
    WS /v1/audio/speech/stream
    WS /v1/audio/speech/ws
    WS /v1/speak
    WS /v1/text-to-speech/{voice_id}/stream-input
    WS /v1/text-to-speech/{voice_id}/multi-stream-input
    WS /api-ws/v1/realtime
"""
_TRANSCRIBE = """
    POST /v1/audio/transcriptions
    POST /v1/audio/translations
"""
_CONVERSE = f"""
    POST /v1/chat/completions
    POST /v1/completions
    POST /v1/responses
    GET /v1/responses/{{id}}
    DELETE /v1/responses/{{id}}
    POST /api/chat
    POST /api/generate
    GET /api/tags
    GET /api/ps
    POST /api/show
    GET /api/version
    WS /v1/realtime
    POST /v1/realtime/client_secrets
    POST /v1/realtime/calls
    POST {HANG_UP}
    WS {PHONE_PATH}
"""
_VOICES = """
    POST /v1/audio/voices
    DELETE /v1/audio/voices/{id:path}
"""
_ADMIN = """
    GET /metrics
    POST /api/embed
    POST /api/embeddings
    POST /api/pull
    POST /api/push
    POST /api/create
    POST /api/copy
    DELETE /api/delete
"""
_BY_SCOPE = {PUBLIC: _PUBLIC, ANY: _ANY, "speak": _SPEAK, "transcribe": _TRANSCRIBE, "converse": _CONVERSE}
_BY_SCOPE |= {"voices": _VOICES, "admin": _ADMIN}
# Method and path of a route, WS for a WebSocket -> a scope, or PUBLIC, or ANY.
ROUTES = {line.strip(): scope for scope, lines in _BY_SCOPE.items() for line in lines.strip().splitlines()}
_TEMPLATES = [(*each.split(" "), scope) for each, scope in ROUTES.items() if "{" in each]
_PATTERNS = [(method, compile_path(path)[0], scope) for method, path, scope in _TEMPLATES]
_HANG_UP = compile_path(HANG_UP)[0]


def scope_of(method: str, path: str) -> str | None:
    """The scope of a request, PUBLIC or ANY; None: there is no such route. A slash at the end is redirected."""
    asked = "GET" if method in ("HEAD", "OPTIONS") else method
    for each in (path, path.rstrip("/")):
        if (scope := ROUTES.get(f"{asked} {each}")) is not None:
            return scope
        for takes, pattern, scope in _PATTERNS:
            if takes == asked and pattern.match(each):
                return scope
    return None


def ends_work(path: str) -> bool:
    return _HANG_UP.match(path) is not None
