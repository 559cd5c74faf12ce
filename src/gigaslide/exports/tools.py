"""The tools that a mask can be handed to, and what is kept of it.

    OUT/exports/<tool>/...     a folder that the tool takes as its own

What was written of a slide for a tool is a `State`, kept in the slide's summary: for which patches, and the files with
their sizes. So a run that was killed goes on, and patches of other sizes take the place of the old ones.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from gigaslide import files
from gigaslide.errors import GigaslideError
from gigaslide.exports import clam, histolab, tiatoolbox, trident
from gigaslide.exports.request import Export, PatchRequest

TOOLS: dict[str, ModuleType] = {"clam": clam, "trident": trident, "tiatoolbox": tiatoolbox, "histolab": histolab}

_FOLDER = "exports"
State = dict[str, Any]


def slide_id(tool: str, slide: Path) -> str:
    """Return what a tool calls a slide."""
    name: str = TOOLS[tool].slide_id(slide)
    return name


def is_current(state: State | None, request: PatchRequest, out: Path) -> bool:
    """Whether a slide is handed on with these patches, and every file is there, of the size it had."""
    return (
        state is not None
        and state.get("request") == _as_json(request)
        and "error" not in state
        and all(
            (out / name).is_file() and (out / name).stat().st_size == size
            for name, size in state.get("files_bytes", {}).items()
        )
    )


def remove(tools: Iterable[str], slide: Path, out: Path) -> None:
    """Remove what was handed on of a slide."""
    for tool in tools:
        for path in list(TOOLS[tool].paths(out / _FOLDER / tool, slide_id(tool, slide))):
            files.remove(path)


def write(tool: str, export: Export, thumbnail: Path, out: Path) -> State:
    """Hand a slide on to a tool, in place of what was before; return what there is to keep of it.

    A slide that the tool would not take leaves no file; the state then says why, as `error`.
    """
    remove([tool], export.reader.path, out)
    folder, module = out / _FOLDER / tool, TOOLS[tool]
    state: State = {"request": _as_json(export.request)}
    try:
        state["patches"] = module.write(export, folder, thumbnail)
    except GigaslideError as error:
        return {**state, "patches": 0, "error": str(error)}
    found = sorted(path for path in module.paths(folder, export.slide_id) if path.is_file())
    return {**state, "files_bytes": {path.relative_to(out).as_posix(): path.stat().st_size for path in found}}


def finish(tool: str, slides: Iterable[Path], out: Path) -> None:
    """Write what a tool needs beside the slides; `slides` are those with patches."""
    TOOLS[tool].finish(out / _FOLDER / tool, slides)


def _as_json(request: PatchRequest) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(json.dumps(asdict(request)))
    return found
