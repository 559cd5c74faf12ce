"""The tissue itself: which texture shows at each pixel, how thick the section is there, and where it ends."""

import numpy as np
from numpy.typing import NDArray

from gigaslide.demo.mosaic import Packed, Textures, height
from gigaslide.demo.noise import Axis, Field, slow, upsample
from gigaslide.demo.shapes import Piece, Regions

FRAY_UM = 14.0
"""An outline moves by up to half of this, outwards at a fibre and inwards between two."""
_SEAM_PX = 8.0
_SHIFTS = (0, 8, 16)  # bits of red, green, blue in packed texture
_INK_DENSITY = (1.6, 0.35, 0.7)
_BLACKEST = np.float32(0.02)


def absorbed(packed: Packed, shift: int) -> Field:
    """Return the share of light that packed texture takes from the channel at bit `shift`, 0..1."""
    return np.float32(1) - ((packed >> shift) & 255).astype(np.float32) * np.float32(1 / 255)


def _kinds(textures: Textures, regions: Regions) -> Packed:
    """Return the texture that shows at each pixel; kinds that the window does not contain are not looked up."""
    packed = None
    here = regions.tissue > -FRAY_UM * textures.um
    special = np.maximum(np.maximum(regions.fat, regions.epithelium), regions.keratin)
    if special[here].min() < _SEAM_PX:
        packed = textures.sample("stroma", 70)
    layers = (("fat", regions.fat), ("epithelium", regions.epithelium), ("keratin", regions.keratin))
    for number, (kind, distance) in enumerate(layers):
        if distance[here].max() <= -_SEAM_PX:
            continue
        new = textures.sample(kind, 71 + number)
        if packed is None:
            packed = new
            continue
        # The border follows whichever side has more matter, so that no nucleus is cut.
        inside = upsample(distance) + np.float32(_SEAM_PX) * (height(new) - height(packed)) > 0
        packed = np.where(inside, new, packed)
    return packed if packed is not None else textures.sample("stroma", 70)


def _thickness(regions: Regions, seed: int, um: float, y: Axis, x: Axis) -> Field:
    """Return the amount of stain on the lattice, about 1: slow changes, denser at the rim and in the basal layer."""
    amount = 1 + np.float32(0.10) * slow(seed + 66, y, x, 450 * um, 2)
    amount += np.float32(0.22) * np.clip(1 - regions.tissue * np.float32(1 / (14 * um)), 0, 1)
    basal = np.abs(regions.epithelium - np.float32(5 * um)) * np.float32(1 / (6 * um))
    amount += np.float32(0.25) * np.clip(1 - basal, 0, 1)
    return np.clip(amount, 0.6, 1.6)


def _margin_ink(regions: Regions, seed: int, um: float, y: Axis, x: Axis) -> Field:
    """Return how much surgical ink, 0..1, clings to the outline on the lattice: in patches, as on the real slide."""
    patch = np.clip(slow(seed + 65, y, x, 520 * um, 2) * np.float32(1.2) - np.float32(1.5), 0, 1)
    rim = np.clip(1 - np.abs(regions.tissue) * np.float32(1 / (9 * um)), 0, 1)
    return patch * rim


def transmit(
    textures: Textures, regions: Regions, y: Axis, x: Axis, folds: list[Piece]
) -> tuple[list[Field], Field, NDArray[np.bool_]]:
    """Return the tissue's transmittance per channel and its coverage, 0..1, at the pixels, and folds on the lattice.

    For windows where tissue is `visible`.
    """
    seed, um = textures.seed, textures.um
    packed = _kinds(textures, regions)
    matter = height(packed)
    frayed = upsample(regions.fray) * np.float32(FRAY_UM * um) * (matter - np.float32(0.5))
    coverage = np.clip(upsample(regions.tissue) + frayed + np.float32(0.5), 0, 1)
    amount = coverage * upsample(_thickness(regions, seed, um, y, x))
    channels = [np.maximum(1 - absorbed(packed, shift) * amount, _BLACKEST) for shift in _SHIFTS]

    ink = _margin_ink(regions, seed, um, y, x)
    if ink.max() > 0:
        stuck = upsample(ink) * coverage * matter
        for channel, density in zip(channels, _INK_DENSITY, strict=True):
            channel *= np.exp(-np.float32(density) * stuck)

    folded = np.zeros(regions.tissue.shape, dtype=bool)
    for piece in folds:
        distance = piece.distance(y, x, slow(seed + 62, y, x, 90 * um))
        if distance.max() <= -2:
            continue
        # A second sheet lies over the first, and the crease scatters some light of every colour.
        double = np.clip(upsample(distance) * np.float32(0.5) + np.float32(0.5), 0, 1) * coverage
        other = textures.sample("stroma", 75)
        for channel, shift in zip(channels, _SHIFTS, strict=True):
            channel *= 1 - (np.float32(0.12) + np.float32(0.85) * absorbed(other, shift)) * double
        folded |= (distance > 0) & (regions.tissue > 0)
    return channels, coverage, folded


def visible(regions: Regions, um: float) -> bool:
    """Tell whether any tissue can show in the window: nothing frays farther than half of `FRAY_UM`."""
    return bool(regions.tissue.max() > -FRAY_UM * um)
