"""What a batch leaves beside its slides: summary.csv and the contact sheet, and a last word on the terminal."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gigaslide import files
from gigaslide.console import console
from gigaslide.prediction.outputs import FAILED, NO_TISSUE
from gigaslide.reporting import contact_sheet

_COLUMNS = (
    "name",
    "status",
    "tissue_mm2",
    "tissue_share",
    "pieces",
    "largest_piece_mm2",
    "holes",
    "hole_share",
    "invalid_share",
    "corrupt_share",
    "mpp_um_per_px",
    "mpp_source",
    "height_px",
    "width_px",
    "attempts",
    "time_all_s",
    "peak_memory_gb",
    "slide",
    "remarks",
)


def write_results(out: Path, names: Sequence[str], summaries: Sequence[Mapping[str, Any]], model: str) -> int:
    """Write summary.csv and index.html; return the exit code, 1 when a slide failed."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _COLUMNS, lineterminator="\n", extrasaction="ignore", restval="")
    writer.writeheader()
    for name, summary in zip(names, summaries, strict=True):
        writer.writerow(_row(name, summary))
    files.write_text(out / "summary.csv", stream.getvalue())
    files.write_text(out / "index.html", contact_sheet.render(names, summaries, model))
    statuses = [summary["status"] for summary in summaries]
    failed, empty = statuses.count(FAILED), statuses.count(NO_TISSUE)
    parts = [f"{len(statuses) - failed - empty} with tissue", f"{empty} without", f"{failed} failed"]
    count = f"{len(statuses)} slide{'' if len(statuses) == 1 else 's'}"
    console.print(f"{count}: {', '.join(parts)}; look at {out / 'index.html'}", markup=False)
    return int(failed > 0)


def _row(name: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    mpp, shape = summary.get("mpp_um_per_px"), summary.get("shape_px", ("", ""))
    return {
        **{key: "" if value is None else value for key, value in summary.items()},
        "name": name,
        "mpp_um_per_px": f"{(mpp[0] * mpp[1]) ** 0.5:.6g}" if mpp else "",
        "height_px": shape[0],
        "width_px": shape[1],
        "remarks": summary.get("reason") or "; ".join(summary.get("warnings", [])),
    }
