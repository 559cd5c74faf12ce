"""Real H&E texture, made endless: image quilting of crops of the real slide into toroidal atlases.

An atlas is 1024 x 1024 px and wraps round. It is laid patch by patch: of several random crops from inside the tissue,
turned or mirrored, take the one that agrees best with what is already there, and join it along the seam of least
difference (Efros and Freeman 2001, "Image quilting"). So every pixel is a real one, nuclei stay sharp and seams run
where they show least. The atlases come from one slide: they vary in stain later, in structure they do not.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from scipy import ndimage

from gigaslide.demo import adipose
from gigaslide.errors import UsageError

Rectangle = tuple[int, int, int, int]
Place = tuple[int, int, int]  # a source, and a patch's corner in it, to 24 px

ATLAS_PX = 1024
SOURCE_UM_PER_PX = 0.499
_PATCH_PX, _OVERLAP_PX, _CANDIDATES = 88, 24, 40
# Colour of the source slide's empty glass: what transmits everything.
_SOURCE_GLASS = np.array([245.0, 243.5, 243.0], dtype=np.float32)

# (top, left, height, width) in the real slide, inside one kind of tissue, chosen by eye at full resolution.
_FINE_COLLAGEN: tuple[Rectangle, ...] = ((2745, 725, 215, 310), (2490, 835, 270, 200), (2620, 840, 150, 190))
_COARSE_COLLAGEN: tuple[Rectangle, ...] = ((1150, 895, 460, 135), (2000, 1480, 560, 150), (2560, 1230, 200, 140))
_CELLULAR: tuple[Rectangle, ...] = (
    (925, 965, 300, 150),
    (1950, 900, 340, 190),
    (2330, 910, 190, 220),
    (1350, 890, 300, 135),
)
_EPITHELIUM: tuple[Rectangle, ...] = (
    (2190, 1120, 150, 180), (1890, 1110, 130, 130), (890, 1110, 190, 180), (2580, 690, 150, 110), (2790, 585, 180, 100),
)  # fmt: skip
_DARK_EPITHELIUM: tuple[Rectangle, ...] = ((2528, 1580, 128, 97),)
_KERATIN: tuple[Rectangle, ...] = ((950, 1410, 140, 180), (1090, 1400, 110, 130))

EPITHELIUM = ("epithelium", "dark_epithelium", "keratin")
_RECIPES: dict[str, tuple[tuple[Rectangle, ...], float]] = {
    "fine": (_FINE_COLLAGEN, 0),
    "fine_45": (_FINE_COLLAGEN, 45),
    "coarse": (_COARSE_COLLAGEN, 0),
    "coarse_45": (_COARSE_COLLAGEN, 45),
    "cellular": (_CELLULAR, 0),
    "epithelium": (_EPITHELIUM, 0),
    "dark_epithelium": (_DARK_EPITHELIUM, 0),
    "keratin": (_KERATIN, 0),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A crop to cut patches from, `image` (y, x, 3), and the top left corners, (n, 2), of the patches inside it."""

    image: NDArray[np.float32]
    origins: NDArray[np.int64]


def _source(image: NDArray[np.float32], rectangle: Rectangle, angle_deg: float, zoom: float) -> Source:
    """Cut, scale and turn one rectangle of the real slide."""
    top, left, height, width = rectangle
    crop = image[top : top + height, left : left + width]
    if zoom != 1:
        crop = ndimage.zoom(crop, (zoom, zoom, 1), order=1)
    inside = np.ones(crop.shape[:2], dtype=np.uint8)
    if angle_deg:
        crop = ndimage.rotate(crop, angle_deg, order=3, mode="constant").astype(np.float32)
        inside = ndimage.rotate(inside, angle_deg, order=0, mode="constant")
    sums = np.zeros((inside.shape[0] + 1, inside.shape[1] + 1), dtype=np.int64)
    sums[1:, 1:] = inside.cumsum(0, dtype=np.int64).cumsum(1)
    p = _PATCH_PX
    full = sums[p:, p:] - sums[:-p, p:] - sums[p:, :-p] + sums[:-p, :-p] == p * p
    return Source(np.clip(crop, 0, 1), np.argwhere(full))


def _mirrored(source: Source) -> Source:
    lefts = source.image.shape[1] - _PATCH_PX - source.origins[:, 1]
    return Source(source.image[:, ::-1], np.stack([source.origins[:, 0], lefts], axis=1))


def _seam(error: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return True from the least-cost path, one column per row, to the right end; `error` is (length, overlap)."""
    cost = error.astype(np.float64)
    before = np.full(cost.shape[1] + 2, np.inf)
    for row in range(1, len(cost)):
        before[1:-1] = cost[row - 1]
        cost[row] += np.minimum(np.minimum(before[:-2], before[1:-1]), before[2:])
    keep = np.zeros(cost.shape, dtype=bool)
    column = int(cost[-1].argmin())
    for row in range(len(cost) - 1, -1, -1):
        keep[row, column:] = True
        if row:
            low = max(column - 1, 0)
            column = low + int(cost[row - 1, low : column + 2].argmin())
    return keep


def _pick(random: np.random.Generator, sources: list[Source]) -> tuple[NDArray[np.float32], Place]:
    """Cut a random patch, half of the time turned by half a turn: fibres keep their direction. Return its place too."""
    sizes = np.array([len(s.origins) for s in sources], dtype=np.float64)
    number = int(random.choice(len(sources), p=sizes / sizes.sum()))
    source = sources[number]
    top, left = source.origins[random.integers(len(source.origins))]
    patch = source.image[top : top + _PATCH_PX, left : left + _PATCH_PX]
    place = number, int(top) // _OVERLAP_PX, int(left) // _OVERLAP_PX
    return (patch[::-1, ::-1] if random.random() < 0.5 else patch), place


def _quilt(random: np.random.Generator, sources: list[Source]) -> NDArray[np.float32]:
    """Return a toroidal texture, (ATLAS_PX, ATLAS_PX, 3)."""
    step = _PATCH_PX - _OVERLAP_PX
    atlas = np.zeros((ATLAS_PX, ATLAS_PX, 3), dtype=np.float32)
    filled = np.zeros((ATLAS_PX, ATLAS_PX), dtype=bool)
    used: Counter[Place] = Counter()
    for top in range(0, ATLAS_PX, step):
        for left in range(0, ATLAS_PX, step):
            where = np.ix_(np.arange(top, top + _PATCH_PX) % ATLAS_PX, np.arange(left, left + _PATCH_PX) % ATLAS_PX)
            old, known = atlas[where], filled[where]
            candidates = [_pick(random, sources) for _ in range(_CANDIDATES)]
            # Every third pixel is enough to rank the candidates. Used ones must be better, or the smoothest always win.
            coarse = np.stack([patch[::3, ::3] for patch, _ in candidates]) - old[::3, ::3]
            cost = (coarse**2 * known[::3, ::3, None]).sum(axis=(1, 2, 3))
            cost *= [1 + used[place] for _, place in candidates]
            patch, place = candidates[int(cost.argsort()[random.integers(3)])]
            used[place] += 1
            error = ((patch - old) ** 2).sum(axis=2)
            new = np.ones((_PATCH_PX, _PATCH_PX), dtype=bool)
            for turn in range(4):  # the overlaps left, top, right, bottom, each turned to the left
                if np.rot90(known, -turn)[_PATCH_PX // 2, 0]:
                    side = _seam(np.ascontiguousarray(np.rot90(error, -turn)[:, :_OVERLAP_PX]))
                    np.rot90(new, -turn)[:, :_OVERLAP_PX] &= side
            share = ndimage.uniform_filter(np.where(known, new, True).astype(np.float32), 3)[..., None]
            share = np.where(known[..., None], share, 1)
            atlas[where] = old + share * (patch - old)
            filled[where] = True
    return atlas


def height_of(transmittance: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return how much matter there is, 0..1, smoothed over a fibre's width: where seams and frayed edges run."""
    darkness = 1 - transmittance.mean(axis=2)
    smooth = ndimage.gaussian_filter(darkness, 2.0, mode="wrap")
    low, high = np.percentile(smooth, (3, 97))
    return np.asarray(np.clip((smooth - low) / max(high - low, 1e-3), 0, 1), dtype=np.float32)


@lru_cache(maxsize=2)
def load_atlases(texture_source: Path, mpp_um_per_px: float) -> dict[str, NDArray[np.float32]]:
    """Build the atlases, name -> transmittance (ATLAS_PX, ATLAS_PX, 3) float32, at the given scale; 3 s, then kept.

    Raises `UsageError` if `mpp_um_per_px` is outside 0.2..0.55: coarser, the crops become smaller than a patch.
    """
    if not 0.2 <= mpp_um_per_px <= 0.55:
        raise UsageError(f"demo slides are made at 0.2 to 0.55 um per px; received mpp_um_per_px={mpp_um_per_px}")
    image = tifffile.imread(texture_source, key=0).astype(np.float32) / _SOURCE_GLASS
    image = np.clip(image, 0, 1)
    zoom = SOURCE_UM_PER_PX / mpp_um_per_px
    zoom = 1.0 if abs(zoom - 1) < 0.02 else zoom
    atlases = {}
    for number, (name, (rectangles, angle_deg)) in enumerate(_RECIPES.items()):
        sources = [_source(image, r, angle_deg, zoom) for r in rectangles]
        if name in EPITHELIUM[:2]:  # no direction to keep
            sources += [_mirrored(source) for source in sources]
        usable = [s for s in sources if len(s.origins)]
        atlases[name] = _quilt(np.random.default_rng(number), usable)
    atlases["fat"] = adipose.atlas(np.random.default_rng(99), atlases["fine"], mpp_um_per_px)
    return atlases
