"""Render any window of a synthetic slide: the picture, the exact mask and the artefact labels.

Every pixel is a pure function of the recipe and its own coordinates: a window rendered alone has the same bits as the
same pixels of a larger window, so a slide of any size is written tile by tile without seams. The picture is a product
of transmittances, as under the microscope: light of the lamp and glass, what lies above the tissue, the tissue itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gigaslide.demo import artefacts, shapes, stains, texture, tissue
from gigaslide.demo.mosaic import Packed, Textures, pack
from gigaslide.demo.noise import BLOCK_PX, LATTICE_PX, Axis, Field, lattice, noise, slow, upsample
from gigaslide.demo.overlays import overlays, stripes
from gigaslide.demo.specks import specks
from gigaslide.geometry import Interval, Window

_BLUR_SIGMA_UM = 2.2
_BLUR_REACH = 3.0  # standard deviations
_NOISE_PX = 512


@dataclass(frozen=True, slots=True)
class SlideRecipe:
    """One synthetic slide: its size, scale, seed, `artefacts` (names of `artefacts.NAMES`) and split."""

    name: str
    height_px: int
    width_px: int
    seed: int
    mpp_um_per_px: float = 0.5
    artefacts: tuple[str, ...] = ("plain",)
    split: str = "train"

    def __post_init__(self) -> None:
        """Refuse a slide that cannot be made."""
        unknown = sorted(set(self.artefacts) - set(artefacts.NAMES))
        if unknown:
            raise ValueError(f"unknown artefacts {unknown}; known are {list(artefacts.NAMES)}")
        if min(self.height_px, self.width_px) < 64:
            raise ValueError(f"a slide has at least 64 x 64 px; received {self.height_px} x {self.width_px}")


@dataclass(frozen=True, slots=True)
class Pixels:
    """A rendered window: `image` (y, x, RGB) uint8, `mask` (y, x) uint8 0 glass 1 tissue, `labels` (y, x) uint8."""

    image: NDArray[np.uint8]
    mask: NDArray[np.uint8]
    labels: NDArray[np.uint8]


def _palette(
    recipe: SlideRecipe, atlases: dict[str, NDArray[np.float32]], random: np.random.Generator
) -> dict[str, Packed]:
    """Stain the atlases for one slide and pack them."""
    if "ihc" in recipe.artefacts:
        negative, positive = stains.immunohistochemistry(random)
        chosen = {name: positive if name in (*texture.EPITHELIUM, "cellular") else negative for name in atlases}
    else:
        stain = stains.pale(random) if "pale" in recipe.artefacts else stains.haematoxylin_eosin(random)
        chosen = dict.fromkeys(atlases, stain)
    return {name: pack(chosen[name].apply(atlas), texture.height_of(atlas)) for name, atlas in atlases.items()}


class Renderer:
    """Renders windows of one slide; holds the stained atlases (about 32 MB) and no pixels of the slide."""

    def __init__(self, recipe: SlideRecipe, atlases: dict[str, NDArray[np.float32]]) -> None:
        random = np.random.default_rng(recipe.seed)
        self.recipe = recipe
        self._um = 1 / recipe.mpp_um_per_px
        self._seed = int(random.integers(1 << 40))
        self._palette = _palette(recipe, atlases, random)
        pieces = shapes.lay_pieces(random, recipe.height_px, recipe.width_px, recipe.mpp_um_per_px)
        self._anatomy = shapes.Anatomy(
            self._seed,
            recipe.mpp_um_per_px,
            pieces,
            fat_share=float(random.uniform(0.57, 0.68)) if "fat" in recipe.artefacts else 0.0,
            gland_share=float(random.uniform(0.2, 1.0)) * (0.3 if "fat" in recipe.artefacts else 1.0),
            gland_um=float(random.uniform(50, 125)),
            epidermis=bool(random.random() < 0.6) and "fat" not in recipe.artefacts,
        )
        shape = recipe.height_px, recipe.width_px
        self._layout = artefacts.lay_out(random, recipe.artefacts, shape, recipe.mpp_um_per_px, pieces)
        grey, warmth = random.uniform(236, 249), random.uniform(-1, 1)
        self._glass = [grey + 2.2 * warmth, grey + random.uniform(-1, 1), grey - 3.5 * warmth]
        grain = random.normal(0, random.uniform(0.6, 1.6), (_NOISE_PX, _NOISE_PX, 3))
        self._sensor = np.clip(grain, -5, 5).astype(np.float32)
        whole = [artefacts.LABEL[n] for n in artefacts.WHOLE_SLIDE if n in recipe.artefacts]
        self._whole_label = whole[0] if whole else 0

    def _light(self, y: Axis, x: Axis, labels: NDArray[np.uint8]) -> list[Field]:
        """Return lamp, glass and all that lies above the tissue, per channel on the lattice, 0..255."""
        um, seed = self._um, self._seed
        tilt_y, tilt_x = (float(noise(seed + 50 + k, np.zeros(1), np.zeros(1), 1)[0, 0]) for k in (0, 1))
        shade = (1 + 0.006 * tilt_y * (2 * y / self.recipe.height_px - 1)).astype(np.float32)[:, None]
        shade = shade + (0.006 * tilt_x * (2 * x / self.recipe.width_px - 1)).astype(np.float32)[None, :]
        # Faint clouds of mounting medium and protein on the glass.
        haze = np.clip(slow(seed + 52, y, x, 500 * um, 4) - np.float32(0.9), 0, 2) * np.float32(0.012)
        shade = shade - haze
        density = overlays(self._layout, y, x, labels)
        light = []
        for channel in range(3):
            field = np.float32(self._glass[channel]) * shade
            if "stitching" in self.recipe.artefacts:
                field = field * stripes(self._layout, y, x, channel)
            if density:
                field = field * np.exp(-density[channel])
            light.append(np.minimum(field, 255))
        return light

    def _sharp(self, window: Window, y: Axis, x: Axis) -> tuple[NDArray[np.float32], Field, NDArray[np.uint8]]:
        """Return the picture in perfect focus, (y, x, 3) 0..255, the coverage, and the labels on the lattice."""
        labels = np.full((len(y), len(x)), self._whole_label, dtype=np.uint8)
        regions = shapes.regions(self._anatomy, y, x)
        if "fat" in self.recipe.artefacts:
            labels[(regions.fat > 0) & (regions.tissue > 0)] = artefacts.LABEL["fat"]
        light = self._light(y, x, labels)
        image = np.empty((*window.shape, 3), dtype=np.float32)
        coverage = np.zeros(window.shape, dtype=np.float32)
        channels: list[Field] = []
        if tissue.visible(regions, self._um):
            textures = Textures.at(self._palette, self._seed, self._um, window, y, x)
            folds = [piece for piece in self._layout.folds if piece.reaches(y, x, 8.0)]
            channels, coverage, folded = tissue.transmit(textures, regions, y, x, folds)
            labels[folded & (labels == self._whole_label)] = artefacts.LABEL["fold"]
        for channel in range(3):
            field = upsample(light[channel])
            image[..., channel] = field * channels[channel] if channels else field
        rows = np.arange(window.y.start, window.y.stop, dtype=np.float64)
        columns = np.arange(window.x.start, window.x.stop, dtype=np.float64)
        dusty = "dust" in self.recipe.artefacts
        for speck in specks(self._layout.seed, self.recipe.mpp_um_per_px, dusty, rows, columns):
            image[speck.where] *= speck.transmittance()
            if dusty:
                nodes = tuple(slice(s.start // LATTICE_PX, s.stop // LATTICE_PX + 1) for s in speck.where)
                labels[nodes] = artefacts.LABEL["dust"]
        return image, coverage, labels

    def _focus(self, window: Window, y: Axis, x: Axis, image: NDArray[np.float32], labels: NDArray[np.uint8]) -> None:
        """Blur the areas that are out of focus, in place."""
        for piece in self._layout.blurs:
            if not piece.reaches(y, x, 0.0):
                continue
            distance = piece.distance(y, x, slow(self._seed + 63, y, x, piece.half_width_px))
            if distance.max() <= 0:
                continue
            sigma = _BLUR_SIGMA_UM * self._um
            margin = -(-int(_BLUR_REACH * sigma + 1) // BLOCK_PX) * BLOCK_PX
            around = Window(
                Interval(window.y.start - margin, window.y.stop + margin),
                Interval(window.x.start - margin, window.x.stop + margin),
            )
            sharp, _, _ = self._sharp(around, *_lattices(around))
            soft = ndimage.gaussian_filter(sharp, (sigma, sigma, 0), truncate=_BLUR_REACH)
            soft = soft[margin:-margin, margin:-margin]
            share = upsample(np.clip(distance * np.float32(1 / (60 * self._um)), 0, 1))[..., None]
            image += share * (soft - image)
            # Whatever else lies in the area keeps its own label.
            free = (labels == self._whole_label) | (labels == artefacts.LABEL["fat"])
            labels[free & (distance > 30 * self._um)] = artefacts.LABEL["blur"]

    def render(self, window: Window) -> Pixels:
        """Return the pixels of `window`, which may reach beyond the slide; windows may come in any order."""
        grown = Window(_align(window.y), _align(window.x))
        y, x = _lattices(grown)
        image, coverage, labels = self._sharp(grown, y, x)
        self._focus(grown, y, x, image, labels)
        noise_y, noise_x = (np.arange(i.start, i.stop) % _NOISE_PX for i in (grown.y, grown.x))
        image += self._sensor[noise_y[:, None], noise_x[None, :]]
        np.rint(np.clip(image, 0, 255, out=image), out=image)
        full = labels[:-1, :-1].repeat(LATTICE_PX, axis=0).repeat(LATTICE_PX, axis=1)
        inner = window.shift(-grown.y.start, -grown.x.start).slices
        return Pixels(
            image[inner].astype(np.uint8), (coverage[inner] >= 0.5).astype(np.uint8), np.ascontiguousarray(full[inner])
        )


def _align(interval: Interval) -> Interval:
    return Interval(interval.start // BLOCK_PX * BLOCK_PX, -(-interval.stop // BLOCK_PX) * BLOCK_PX)


def _lattices(window: Window) -> tuple[Axis, Axis]:
    return lattice(window.y.start, window.y.stop), lattice(window.x.start, window.x.stop)
