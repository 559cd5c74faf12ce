"""The addresses of the viewer, as a Starlette application. No part of an address is ever a file name.

/                                          the page
/static/NAME                               one of its files, from a fixed list
/api/slide, /api/state, /api/regions       JSON
/api/strokes, /api/undo, /api/redo, /api/clear, /api/save      POST, answer with the state
/tiles/LAYER/VERSION/LEVEL/COLUMN_ROW.jpeg or .png             Deep Zoom tiles; VERSION only tells browsers apart
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gigaslide.errors import GigaslideError
from gigaslide.machine import usable_threads
from gigaslide.viewer.describe import describe_regions, describe_slide
from gigaslide.viewer.guard import Guard
from gigaslide.viewer.session import SLIDE, Session, etag

_LARGEST_BODY_BYTES = 4 << 20
# Browsers ask again each time whether a tile is still the one they have: another slide may follow at this port.
_ASK_AGAIN = {"Cache-Control": "private, no-cache"}
_NOT_KEPT = {"Cache-Control": "no-store"}
_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FILES = (
    "index.html",
    "viewer.css",
    "icon.svg",
    "openseadragon/openseadragon.min.js",
    *(f"{name}.js" for name in ("main", "api", "layers", "drawing", "panels", "readout", "keys")),
)


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of the page's files, by name: only what is in this list can be asked for."""
    folder = resources.files("gigaslide.viewer") / "static"
    return {name: (folder.joinpath(name).read_bytes(), _MEDIA_TYPES[name.rpartition(".")[2]]) for name in _FILES}


def _with_etag(request: Request, content: bytes, media_type: str, headers: dict[str, str] = _ASK_AGAIN) -> Response:
    tag = etag(content)
    headers = {**headers, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


class _Pages:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._static = _static_files()
        # Not Starlette's own forty threads: each keeps the slide open.
        self._pool = ThreadPoolExecutor(max_workers=max(2, usable_threads()), thread_name_prefix="tiles")

    async def _work(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def page(self, request: Request) -> Response:
        return _with_etag(request, *self._static["index.html"])

    async def static(self, request: Request) -> Response:
        found = self._static.get(request.path_params["name"])
        return Response(status_code=404) if found is None else _with_etag(request, *found)

    async def slide(self, request: Request) -> Response:
        return JSONResponse(describe_slide(self._session), headers=_NOT_KEPT)

    async def state(self, request: Request) -> Response:
        return JSONResponse(self._session.state(), headers=_NOT_KEPT)

    async def regions(self, request: Request) -> Response:
        return JSONResponse(describe_regions(self._session), headers=_NOT_KEPT)

    async def tile(self, request: Request) -> Response:
        layer = request.path_params["layer"]
        try:
            level, column, row = (int(request.path_params[name]) for name in ("level", "column", "row"))
        except ValueError:
            return Response(status_code=404)
        if request.path_params["ending"] != ("jpeg" if layer == SLIDE else "png"):
            return Response(status_code=404)
        if layer != SLIDE:
            while not self._session.sampled.is_set():  # without holding a thread
                await asyncio.sleep(0.05)
        found = await self._work(lambda: self._session.tile(layer, level, column, row))
        if found is None:
            return Response(status_code=404)
        content, is_final = found
        headers = _ASK_AGAIN if is_final else _NOT_KEPT
        return _with_etag(request, content, "image/jpeg" if layer == SLIDE else "image/png", headers)

    async def stroke(self, request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST_BODY_BYTES:
                return JSONResponse({"error": "a stroke has 4 MiB at most: draw it in parts"}, 413)
        try:
            value = json.loads(bytes(body))
        except (ValueError, RecursionError):
            return JSONResponse({"error": "expected a stroke as JSON"}, 400)
        return await self._change(lambda: self._session.draw(value))

    async def undo(self, request: Request) -> Response:
        return await self._change(self._session.undo)

    async def redo(self, request: Request) -> Response:
        return await self._change(self._session.redo)

    async def clear(self, request: Request) -> Response:
        return await self._change(self._session.clear)

    async def save(self, request: Request) -> Response:
        return await self._change(self._session.save)

    async def _change(self, change: Callable[[], Any]) -> Response:
        try:
            result = await self._work(change)
        except GigaslideError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"state": self._session.state(), "result": result}, headers=_NOT_KEPT)


def build(session: Session, port: int, key: str) -> Starlette:
    """Return the application of a session, for the server at `port` whose pages know the `key`."""
    pages = _Pages(session)
    tile = "/tiles/{layer:str}/{version:str}/{level:str}/{column:str}_{row:str}.{ending:str}"
    routes = [
        Route("/", pages.page),
        Route("/static/{name:path}", pages.static),
        Route("/api/slide", pages.slide),
        Route("/api/state", pages.state),
        Route("/api/regions", pages.regions),
        Route(tile, pages.tile),
        *(
            Route(f"/api/{name}", handler, methods=["POST"])
            for name, handler in (
                ("strokes", pages.stroke),
                ("undo", pages.undo),
                ("redo", pages.redo),
                ("clear", pages.clear),
                ("save", pages.save),
            )
        ),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, port=port, key=key)])
