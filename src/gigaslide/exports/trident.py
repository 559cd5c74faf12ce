"""Patches and contours for TRIDENT, as its `run_batch_of_slides.py --task seg` and `--task coords` leave them.

    contours_geojson/<slide>.geojson                          tissue, polygons in (x, y) of level 0
    contours/<slide>.jpg                                      a picture; that it is there means: segmented already
    <mag>x_<patch>px_0px_overlap/patches/<slide>_patches.h5   data set `coords`, int64 (patches, 2), (x, y) of level 0

Read in github.com/mahmoodlab/TRIDENT, version 0.3.0 at commit a91fa84 (2026-06-24): `coords_to_h5`, `read_coords` and
`splitext` (trident/IO.py), `WSI.extract_tissue_coords`, `WSI._fetch_magnification` and `WSI.segment_tissue`
(trident/wsi_objects/WSI.py), `WSIPatcher` (WSIPatcher.py), `Processor` (trident/Processor.py), which reads the contours
of a slide with geopandas where it finds them.

TRIDENT counts in magnification, not um per px: a slide of 0.2 to 0.3 um is 40x, one of 0.3 to 0.6 um 20x and so on, and
patches of 0.5 um are 20x ones, so a patch is 512 px of level 0 in every slide of 40x. This is kept, as the features of
its encoders are known for it. What differs: patches that reach beyond the slide are left out, and a patch has a share
of tissue of the mask itself (`--min_tissue_proportion` there, 0 by default, of simplified contours).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from gigaslide import files
from gigaslide.errors import SlideError
from gigaslide.exports.coordinates import write_coordinates
from gigaslide.exports.patches import find_patches
from gigaslide.exports.request import Export
from gigaslide.masks.geojson import DEFAULT_TOLERANCE_UM, tolerance_px, write_geojson

_COMPOUND_SUFFIXES = (".ome.tif", ".ome.tiff", ".ome.zarr")
# Below so many um per px, a slide has this magnification.
_MAGNIFICATIONS = ((0.16, 80), (0.2, 60), (0.3, 40), (0.6, 20), (1.2, 10), (2.4, 5))
_UM_PER_PX_TIMES_MAGNIFICATION = 10.0
_MPP_DECIMALS = 4


@dataclass(frozen=True)
class _Magnified:
    level0: int
    target: int | float

    def level0_px(self, patch_px: int) -> int:
        """Return the size of a patch at level 0, as `WSIPatcher` finds it from the two pixel sizes."""
        return round(patch_px * (_pixel_size(self.target) / _pixel_size(self.level0)))


def _pixel_size(magnification: float) -> float:
    return _UM_PER_PX_TIMES_MAGNIFICATION / magnification


def _magnified(export: Export) -> _Magnified:
    """Return the magnification of level 0 and of the patches.

    Raises:
        SlideError: TRIDENT would find none.
    """
    mpp = export.reader.resolution.mpp_um_per_px
    if mpp is None:
        raise SlideError(
            f"{export.reader.path} does not say how large its pixels are, and TRIDENT has to know: give the value in "
            "the mpp column of a table, here and in TRIDENT's --custom_list_of_wsis"
        )
    mpp_x = round(mpp[1], _MPP_DECIMALS)
    level0 = next((power for limit, power in _MAGNIFICATIONS if mpp_x < limit), None)
    if level0 is None:
        raise SlideError(
            f"{export.reader.path} has {mpp_x:g} um per px at full resolution; TRIDENT takes slides of less than "
            f"{_MAGNIFICATIONS[-1][0]:g} only"
        )
    wanted = export.patch_mpp_um_per_px
    if wanted is None or export.level0_px_per_patch_px == 1:
        return _Magnified(level0, level0)
    target = _UM_PER_PX_TIMES_MAGNIFICATION / wanted
    return _Magnified(level0, round(target) if abs(target - round(target)) < 1e-9 else target)


def slide_id(slide: Path) -> str:
    """Return TRIDENT's name of a slide."""
    suffix = next((end for end in _COMPOUND_SUFFIXES if slide.name.lower().endswith(end)), slide.suffix)
    return slide.name.removesuffix(slide.name[len(slide.name) - len(suffix) :])


def paths(folder: Path, slide: str) -> Iterator[Path]:
    """Yield the files of a slide, of patches of any size."""
    yield folder / "contours_geojson" / f"{slide}.geojson"
    yield folder / "contours" / f"{slide}.jpg"
    yield from folder.glob(f"*/patches/{escape(slide)}_patches.h5")


def write(export: Export, folder: Path, thumbnail: Path) -> int:
    """Write contours and patches of a slide into TRIDENT's `job_dir`; return how many patches there are.

    Args:
        export: the slide.
        folder: the `job_dir`.
        thumbnail: JPEG of the slide with outlines.

    Raises:
        SlideError: TRIDENT would not take the slide.
    """
    magnified, reader, patch_px = _magnified(export), export.reader, export.request.patch_px
    level0_px = magnified.level0_px(patch_px)
    found = find_patches(export.outlines, reader.level0_shape, (level0_px, level0_px), export.request.min_tissue)
    coordinates = folder / f"{magnified.target:g}x_{patch_px}px_0px_overlap"
    attributes = {
        "patch_size": patch_px,
        "patch_size_level0": patch_px * magnified.level0 // magnified.target,
        "level0_magnification": magnified.level0,
        "target_magnification": magnified.target,
        "overlap": 0,
        "name": export.slide_id,
        "savetodir": str(coordinates),
        "level0_width": reader.level0_shape[1],
        "level0_height": reader.level0_shape[0],
    }
    contours, picture = list(paths(folder, export.slide_id))[:2]
    tolerance = tolerance_px(DEFAULT_TOLERANCE_UM, reader.resolution.mpp_um_per_px)
    write_geojson(contours, export.outlines, scale_yx=reader.level0_px_per_px, tolerance=tolerance)
    patches = coordinates / "patches" / f"{export.slide_id}_patches.h5"
    write_coordinates(patches, found.cells * level0_px, attributes)
    files.write_bytes(picture, thumbnail.read_bytes())
    return len(found)


def finish(folder: Path, slides: Iterable[Path]) -> None:
    """Leave all as it is: TRIDENT finds slides by its `--wsi_dir`."""
