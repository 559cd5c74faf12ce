"""The contact sheet of a batch: every slide small with its outline, failures first. A page and the files beside it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gigaslide.reporting.templates import environment

_TEMPLATE = "contact_sheet.html.jinja"
_FAILED, _NO_TISSUE = "failed", "no_tissue"


def render(names: Sequence[str], summaries: Sequence[Mapping[str, Any]], model: str) -> str:
    """Return the page as HTML; links and pictures are relative to the folder that holds those of the slides.

    Args:
        names: of the slides, which are those of their folders.
        summaries: the slides' summary.json.
        model: the network's name.
    """
    slides = [_slide(name, summary) for name, summary in zip(names, summaries, strict=True)]
    # The order of a browser without scripts.
    slides.sort(key=lambda slide: (slide["status"] != _FAILED, -slide["order_tissue"], slide["name"]))
    counts = Counter(slide["status"] for slide in slides)
    counts["warned"] = sum(bool(slide["warnings"]) for slide in slides)
    return (
        environment()
        .get_template(_TEMPLATE)
        .render(slides=slides, counts=counts, headline=_headline(summaries, counts), under=f"Predicted with {model}.")
    )


def _headline(summaries: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> str:
    slides = len(summaries)
    areas = [summary["tissue_mm2"] for summary in summaries if summary.get("tissue_mm2") is not None]
    parts = [f"{slides} slide{'' if slides == 1 else 's'}"]
    if areas:
        parts.append(f"{sum(areas):,.1f} mm² of tissue")
    if counts[_NO_TISSUE]:
        parts.append(f"{counts[_NO_TISSUE]} without tissue")
    if counts[_FAILED]:
        parts.append(f"{counts[_FAILED]} failed")
    return ", ".join(parts)


def _slide(name: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of a slide."""
    shown: dict[str, Any] = {
        "name": name,
        "folder": quote(name),
        "status": summary["status"],
        "reason": summary.get("reason", "").replace(summary["slide"], Path(summary["slide"]).name),
        "warnings": summary.get("warnings", []),
        "order_tissue": summary.get("tissue_mm2") or summary.get("tissue_px", 0) / 1e6,
        "pieces": summary.get("pieces", 0),
        "hole_share": summary.get("hole_share", 0),
        "lost_share": summary.get("corrupt_share", 0) + summary.get("invalid_share", 0),
    }
    if summary["status"] == _FAILED:
        tries = summary["attempts"]
        details = "tried once" if tries == 1 else f"tried {tries} times"
        return shown | {"value": "failed", "details": details, "links": [("summary", "summary.json")]}
    height, width = summary["shape_px"]
    mpp = summary["mpp_um_per_px"]
    parts = [f"{width:,} by {height:,} px"]
    if mpp:
        parts.append(f"{(mpp[0] * mpp[1]) ** 0.5:.3g} µm per px")
    if summary["pieces"]:
        parts.append(f"{summary['pieces']:,} piece{'' if summary['pieces'] == 1 else 's'}")
        parts.append(f"{summary['hole_share']:.1%} holes")
    if summary["invalid_share"]:
        parts.append(f"{summary['invalid_share']:.1%} not scanned or lost")
    links = [(text, file) for text, file in _FILES if file in summary["outputs_bytes"]]
    return shown | {"value": _area(summary), "details": " · ".join(parts), "links": links}


_FILES = (
    ("mask", "mask.tif"),
    ("QuPath", "mask.geojson"),
    ("heat map", "heatmap.ome.tif"),
    ("summary", "summary.json"),
)


def _area(summary: Mapping[str, Any]) -> str:
    if summary["status"] == _NO_TISSUE:
        return "no tissue"
    if summary["tissue_mm2"] is None:
        return f"{summary['tissue_share']:.1%} tissue"
    return f"{summary['tissue_mm2']:.3g} mm²"
