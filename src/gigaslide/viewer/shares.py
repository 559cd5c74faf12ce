"""What of each pixel is tissue, invalid, missed or false, on every level of the Deep Zoom pyramid.

Fine levels read the labels where a tile needs them. The finest level of at most `SAMPLED_PX` pixels is read once as a
whole (a pixel has the label under its centre), and the levels below it are its halves: no tile of a low zoom reads a
whole mask. So the memory is bounded whatever the slide, and a slide of up to `SAMPLED_PX` pixels is counted pixel by
pixel.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gigaslide.classes import GLASS, INVALID, TISSUE
from gigaslide.geometry import Window, split
from gigaslide.slides.arrays import Bytes, Flags
from gigaslide.slides.labels import LabelSource
from gigaslide.viewer.deep_zoom import DeepZoom
from gigaslide.viewer.halving import pyramid

SAMPLED_PX = 25_000_000
TILE_PX = 256  # no overlap: see-through pixels must not lie on each other
_BAND_PX = 4_000_000

Planes = Mapping[str, Bytes]


class SharedLabels:
    """A label source that any thread may read: mask files have one position in the file."""

    def __init__(self, labels: LabelSource) -> None:
        self._labels, self._lock = labels, threading.Lock()
        self._by_shape: dict[tuple[int, int], LabelSource] = {}

    def read(self, shape: tuple[int, int], window: Window) -> Bytes:
        """Return the labels, uint8 (y, x), of a window of the grid of `shape`."""
        with self._lock:
            if shape not in self._by_shape:
                self._by_shape[shape] = self._labels.at_shape(shape)
            return self._by_shape[shape].read(window)


def _plane(flags: Flags) -> Bytes:
    return flags.astype(np.uint8) * np.uint8(255)


def compare(prediction: Bytes | None, truth: Bytes | None) -> dict[str, Flags]:
    """Return flags (y, x) by name, of labels (y, x): of each mask, tissue and invalid; of both, missed and false.

    Where either is invalid there is no disagreement.
    """
    flags = {}
    for name, labels in (("prediction", prediction), ("truth", truth)):
        if labels is not None:
            flags[name], flags[f"{name}_invalid"] = labels == TISSUE, labels == INVALID
    if prediction is not None and truth is not None:
        flags["missed"] = (truth == TISSUE) & (prediction == GLASS)
        flags["false"] = (prediction == TISSUE) & (truth == GLASS)
    return flags


@dataclass
class _Sampled:
    levels: Mapping[str, list[Bytes]]


class Shares:
    """The planes of a slide's masks by name, uint8, 255 for all of a pixel."""

    def __init__(
        self,
        shape: tuple[int, int],
        prediction: LabelSource | None,
        truth: LabelSource | None,
        max_px: int = SAMPLED_PX,
    ) -> None:
        self.zoom = DeepZoom(shape, TILE_PX)
        self.sampled_level = self.zoom.finest_level(max_px)
        self._prediction = None if prediction is None else SharedLabels(prediction)
        self._truth = None if truth is None else SharedLabels(truth)
        self._sampled: _Sampled | None = None
        self._stop = threading.Event()
        self.share_done = 0.0

    @property
    def sampled_shape(self) -> tuple[int, int]:
        """Size (y, x) of the level that was read as a whole."""
        return self.zoom.level_shape(self.sampled_level)

    def sample(self) -> None:
        """Read the sampled level; blocks until that is done, or `close` was called."""
        shape = self.sampled_shape
        found: dict[str, Bytes] = {}
        for band in split(shape[0], max(1, _BAND_PX // shape[1])):
            if self._stop.is_set():
                return
            for name, flags in self._flags(shape, Window(band, Window.of(0, 0, *shape).x)).items():
                found.setdefault(name, np.zeros(shape, np.uint8))[band.slice] = _plane(flags)
            self.share_done = band.stop / shape[0]
        self._sampled = _Sampled({name: pyramid(plane, self.sampled_level + 1) for name, plane in found.items()})

    def finest_sampled(self, name: str) -> Bytes:
        """Return a plane (y, x) of `sampled_shape`; after `sample`."""
        if self._sampled is None:
            raise RuntimeError("the masks were not sampled yet")
        return self._sampled.levels[name][self.sampled_level]

    def read(self, level: int, window: Window) -> Planes:
        """Return the planes (y, x) of a window of a level; after `sample`."""
        if level > self.sampled_level:
            flags = self._flags(self.zoom.level_shape(level), window)
            return {name: _plane(found) for name, found in flags.items()}
        if self._sampled is None:
            raise RuntimeError("the masks were not sampled yet")
        return {name: levels[level][window.slices] for name, levels in self._sampled.levels.items()}

    def close(self) -> None:
        """Let `sample` end."""
        self._stop.set()

    def _flags(self, shape: tuple[int, int], window: Window) -> dict[str, Flags]:
        masks = self._prediction, self._truth
        prediction, truth = (None if mask is None else mask.read(shape, window) for mask in masks)
        return compare(prediction, truth)
