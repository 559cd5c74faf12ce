"""Masks, points and contours for tiatoolbox.

    masks/<slide>.png                       for `input_mask=` of a patch extractor, and `masks=` of an engine
    points_<mpp>mpp_<patch>px/<slide>.csv   x, y, class: for `PointsPatchExtractor(locations_list=...)`
    annotations/<slide>.geojson             for `SQLiteStore.from_geojson`, in (x, y) of level 0

Read in github.com/TissueImageAnalytics/tiatoolbox, versions 2.0.1 and 2.1.3: `PatchExtractor`, `PointsPatchExtractor`
and `SlidingWindowPatchExtractor` (tiatoolbox/tools/patchextraction.py), `imread` and `read_locations`
(tiatoolbox/utils/misc.py), `AnnotationStore.add_from_geojson` (tiatoolbox/annotation/storage.py). A mask is stretched
over the whole slide, any colour but black is tissue. tiatoolbox reads a slide at any pixel size, so points are in
pixels of that size (`resolution=<mpp>, units="mpp"`), as the name of the folder says; where the slide does not say how
large its pixels are, in pixels of level 0 (`resolution=1.0, units="baseline"`, folder `points_baseline_<patch>px`). A
point is the pixel that the extractor calls a patch's centre, `(patch - 1) // 2` from its first.

The points are those of the mask itself; `SlidingWindowPatchExtractor(input_mask=..., min_mask_ratio=0.25,
within_bound=True)` finds the same grid, but counts tissue in the small mask.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from glob import escape
from pathlib import Path

from gigaslide import files
from gigaslide.exports.patches import find_patches
from gigaslide.exports.request import Export
from gigaslide.exports.small_mask import write_small_mask
from gigaslide.masks.geojson import DEFAULT_TOLERANCE_UM, tolerance_px, write_geojson

_CLASS = "Tissue"
# Patches are placed by fractions: with these, the last of a row of 10 000 px is off by 1/10 000 px.
_LARGEST_DENOMINATOR = 10_000


def slide_id(slide: Path) -> str:
    """Return the name of a slide's files."""
    return slide.stem


def paths(folder: Path, slide: str) -> Iterator[Path]:
    """Yield the files of a slide, of patches of any size."""
    yield folder / "masks" / f"{slide}.png"
    yield folder / "annotations" / f"{slide}.geojson"
    yield from folder.glob(f"points_*/{escape(slide)}.csv")


def _frame(export: Export) -> tuple[str, tuple[Fraction, Fraction]]:
    """Return which pixels the points are in, and how many of level 0 there are to one, (y, x)."""
    level0 = export.reader.resolution.mpp_um_per_px
    if level0 is None:
        return "baseline", (Fraction(1), Fraction(1))
    wanted = export.patch_mpp_um_per_px or max(level0)
    text = f"{wanted:g}"  # the user will give it to tiatoolbox as it stands in the name
    y, x = (Fraction(float(text) / mpp).limit_denominator(_LARGEST_DENOMINATOR) for mpp in level0)
    return f"{text}mpp", (y, x)


def write(export: Export, folder: Path, thumbnail: Path) -> int:
    """Write mask, contours and points of a slide into a folder for tiatoolbox; return how many points there are."""
    reader, patch_px = export.reader, export.request.patch_px
    frame, scale_yx = _frame(export)
    found = find_patches(
        export.outlines,
        reader.level0_shape,
        (scale_yx[0] * patch_px, scale_yx[1] * patch_px),
        export.request.min_tissue,
    )
    mask, annotations = list(paths(folder, export.slide_id))[:2]
    write_small_mask(mask, export)
    tolerance = tolerance_px(DEFAULT_TOLERANCE_UM, reader.resolution.mpp_um_per_px)
    write_geojson(annotations, export.outlines, scale_yx=reader.level0_px_per_px, tolerance=tolerance)
    points = found.cells * patch_px + (patch_px - 1) // 2
    rows = [f"{x},{y},{_CLASS}\n" for y, x in points.tolist()]
    files.write_text(
        folder / f"points_{frame}_{patch_px}px" / f"{export.slide_id}.csv", "".join(["x,y,class\n", *rows])
    )
    return len(found)


def finish(folder: Path, slides: Iterable[Path]) -> None:
    """Leave all as it is: tiatoolbox is told each file."""
