"""What the page is told of the slide, its layers and the regions, as JSON values."""

import math
from typing import Any

from gigaslide.slides.reader import SlideReader
from gigaslide.viewer.deep_zoom import DeepZoom
from gigaslide.viewer.layers import CORRECTIONS
from gigaslide.viewer.paint import STYLES
from gigaslide.viewer.regions import Region
from gigaslide.viewer.session import SLIDE, Session

# Objectives are named by what they were at 0.25 um per px: 40x.
_UM_PER_PX_TIMES_POWER = 10.0
_TITLES = {"prediction": "Prediction", "truth": "Truth", "disagreement": "Disagreement", CORRECTIONS: "Corrections"}
_STYLES = {"disagreement": ("missed", "false"), CORRECTIONS: ("corrected",)}


def area_um2(area_px: float, reader: SlideReader) -> float | None:
    """Return an area of level 0 in um2, None when the slide does not say how large its pixels are."""
    mpp = reader.resolution.mpp_um_per_px
    return None if mpp is None else area_px * math.prod(mpp)


def _deep_zoom(zoom: DeepZoom, ending: str) -> dict[str, Any]:
    height, width = zoom.shape
    return {"height": height, "width": width, "tile": zoom.tile_px, "overlap": zoom.overlap_px, "ending": ending}


def _layer(name: str, zoom: DeepZoom) -> dict[str, Any]:
    colours = ["#{:02x}{:02x}{:02x}".format(*STYLES[style].line) for style in _STYLES.get(name, (name,))]
    return {"name": name, "title": _TITLES[name], "colours": colours, **_deep_zoom(zoom, "png")}


def describe_slide(session: Session) -> dict[str, Any]:
    """Return what does not change while the page is open; lengths in px of level 0 and um."""
    given = session.given
    mpp = given.reader.resolution.mpp_um_per_px
    return {
        "name": given.reader.path.name,
        "mpp": None if mpp is None else list(mpp),
        "mpp_source": given.reader.resolution.source,
        "power": None if mpp is None else _UM_PER_PX_TIMES_POWER / max(mpp),
        "slide": _deep_zoom(session.slide.zoom, "jpeg") | {"name": SLIDE},
        "layers": [_layer(name, session.layers.zoom) for name in session.layer_names],
        "mask": given.mask[0].name if given.mask else None,
        "truth": given.truth[0].name if given.truth else None,
        "save": str(given.save),
        "warnings": list(given.reader.warnings),
    }


def _region(region: Region, reader: SlideReader) -> dict[str, Any]:
    return {
        "kind": region.kind,
        "px": region.area_px,
        "um2": area_um2(region.area_px, reader),
        "box": list(region.box),
        "point": list(region.point),
    }


def describe_regions(session: Session) -> dict[str, Any]:
    """Return the regions, the largest first; empty until they are found."""
    regions, reader = session.regions, session.given.reader
    if regions is None:
        return {"regions": [], "more": 0, "more_px": 0.0, "more_um2": None}
    return {
        "regions": [_region(region, reader) for region in regions.largest],
        "more": regions.more_count,
        "more_px": regions.more_area_px,
        "more_um2": area_um2(regions.more_area_px, reader),
    }
