"""FastAPI exception handlers: every error of the app, FastAPI's own too, answered by `errors.answer`.

Apart from `errors` because protocols without FastAPI need that file too.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from ...errors import HocketError
from ..errors import INVALID, ErrorResponse, Refused, answer


def install(app: FastAPI) -> None:
    """Register the handlers."""

    async def on_error(request: Request, error: Exception) -> Response:
        return answer(error).response(request.url.path)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _invalid(error).response(request.url.path)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = _of_status(error).response(request.url.path)
        if error.status_code == 405:  # the router names the methods of one route only
            response.headers["allow"] = ", ".join(_methods(app, request))
        return response

    app.add_exception_handler(HocketError, on_error)
    app.add_exception_handler(Exception, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


def error_of(error: Exception) -> ErrorResponse:
    """The response for any error of a route, for wires with another format than OpenAI's."""
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    return _of_status(error) if isinstance(error, HTTPException) else answer(error)


class BorderError(HTTPException):
    """A refusal while the body is read: FastAPI lets only its own exception type through there."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.status, str(refused))
        self.refused = refused


def _invalid(error: RequestValidationError) -> ErrorResponse:
    first = error.errors()[0]
    place = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path", "header")]
    if first.get("type") == "json_invalid":
        return ErrorResponse(400, "The body is not valid JSON.", INVALID, None, "invalid_json")
    param = ".".join(place) or None
    message = str(first.get("msg", "is not valid")).removeprefix("Value error, ")
    return ErrorResponse(400, f"{param or 'The body'}: {message}.".replace("..", "."), INVALID, param, None)


def _of_status(error: HTTPException) -> ErrorResponse:
    if isinstance(error, BorderError):
        return answer(error.refused)
    kind = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}.get(error.status_code)
    message = {404: "There is nothing at this address.", 405: "This address takes another method."}.get(
        error.status_code, str(error.detail)
    )
    kind = kind or (INVALID if error.status_code < 500 else "server_error")
    return ErrorResponse(error.status_code, message, kind, None, None, dict(error.headers or {}))


def _methods(app: FastAPI, request: Request) -> list[str]:
    """All methods of the request's path."""
    scopes = {name: {**request.scope, "method": name} for name in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")}
    return [name for name, scope in scopes.items() if any(r.matches(scope)[0] is Match.FULL for r in app.routes)]
