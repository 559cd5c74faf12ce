"""Who may ask: only pages of this server, in the browser that was given its key.

* The `Host` of a request is this server by its local name: a page elsewhere that makes its own name point to
  127.0.0.1 (DNS rebinding) sends its own name.
* The key in the address that the command prints is exchanged for a cookie that scripts cannot read and that other sites
  do not send (`HttpOnly`, `SameSite=Strict`); without it nothing is served, so other users of the machine see nothing.
* Whatever is written comes from this server's own pages (`Origin`) as JSON, which other pages cannot send unasked.
* Pages may load from this server only, and may not be framed. There is no CORS.
"""

import hmac
import secrets

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    # OpenSeadragon styles elements by script, which `style-src` does not concern.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
KEY = "key"


class Guard:
    """ASGI middleware that lets through what the module describes, for the server at `port`."""

    def __init__(self, app: ASGIApp, port: int, key: str) -> None:
        self._app, self._key = app, key
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"gigaslide-{port}"  # ports of one host share their cookies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSocket is served: the server closes it

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that may not pass, or that brings the key; None lets it pass."""
        headers = Headers(scope=scope)
        if headers.getlist("host") != [headers.get("host")] or headers["host"].lower() not in self._hosts:
            return PlainTextResponse("this server answers at 127.0.0.1 only", 421)
        if scope["path"] == "/" and scope["method"] == "GET":
            given = QueryParams(scope["query_string"]).get(KEY)
            if given is not None and self._is_key(given):
                answer = RedirectResponse("/", 303)
                answer.set_cookie(self._cookie, self._key, httponly=True, samesite="strict", path="/")
                return answer
        if not self._is_key(cookie_parser(headers.get("cookie", "")).get(self._cookie, "")):
            return PlainTextResponse(
                "open the address that `gigaslide view` printed: it holds the key to this page", 403
            )
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("origin") not in {f"http://{host}" for host in self._hosts}:
                return PlainTextResponse("only this server's own page may change something", 403)
            if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
                return PlainTextResponse("expected application/json", 415)
        return None

    def _is_key(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._key.encode())


def new_key() -> str:
    """Return a key that nobody can guess."""
    return secrets.token_urlsafe(24)
