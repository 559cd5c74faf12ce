"""What decides the results of a study, so that no study goes on with other settings or other slides."""

import json
from collections.abc import Mapping
from typing import Any

from gigaslide.config import Settings
from gigaslide.provenance import digest
from gigaslide.slides.store import open_split
from gigaslide.stages.stored import place
from gigaslide.sweep.space import Space

_BLOCKS = ("network.", "train.", "memory.", "evaluate.threshold")
_SPLITS = ("train", "validation")


def of(settings: Settings, space: Space) -> dict[str, Any]:
    """Return the identity of a study, flat, so that a difference can be named."""
    varied = {*settings.sweep.space, *settings.sweep.values}
    found: dict[str, Any] = {
        key: value for key, value in settings.flat().items() if key.startswith(_BLOCKS) and key not in varied
    }
    sweep = settings.sweep.model_dump(mode="json", include={"space", "values", "extent_px"})
    found |= {f"sweep.{key}": json.dumps(value) for key, value in sweep.items()}
    found["sweep.grid_cells"] = "walked" if space.cells is not None else "sampled"
    for split in _SPLITS:
        for store in open_split(place(settings), split):
            # With its labels, its resolution and its region.
            found[f"{split} slide {store.name}"] = digest(store.attributes)[:12]
    return found


def changes(known: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs, in words."""
    return [
        f"{key}: {_text(known.get(key))} -> {_text(now.get(key))}"
        for key in {**known, **now}
        if known.get(key) != now.get(key)
    ]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
