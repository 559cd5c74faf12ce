"""Ink, bubbles and the coverslip's edge: what lies above the tissue, out of focus, and takes light from it.

All are smooth optical densities on the 4 px lattice; scanner stripes are factors there.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gigaslide.demo.artefacts import LABEL, Edge, Layout, Ring
from gigaslide.demo.noise import Axis, Field, fractal, hash_unit, slow

# Optical density (natural logarithm) of a full stroke in red, green and blue. A quarter of the light comes through even
# the black one: where nobody can see what lies below, a mask could not be right.
_INK = {"pen_black": (1.4, 1.39, 1.38), "pen_green": (1.7, 0.6, 1.1), "pen_blue": (1.6, 1.15, 0.35)}
# Air and glass bend light of all colours away: their shadows are grey.
_BUBBLE_COLOUR = (1.0, 1.0, 1.0)
_EDGE_COLOUR = (1.0, 1.0, 1.0)
_FIELD_OF_VIEW_PX = 512
_STRIPE_PX = 2048


@dataclass(slots=True)
class _Sheet:
    """The densities of one window as they add up, and the labels they mark; a lattice `y`, `x`, `um` px per um."""

    layout: Layout
    y: Axis
    x: Axis
    labels: NDArray[np.uint8]
    density: list[Field] = field(default_factory=list)

    @property
    def um(self) -> float:
        return 1 / self.layout.mpp_um_per_px

    def add(self, density: Field, colour: tuple[float, ...], name: str, covered: NDArray[np.bool_]) -> None:
        if not self.density:
            self.density = [np.zeros(self.labels.shape, dtype=np.float32) for _ in range(3)]
        for channel in range(3):
            self.density[channel] += density * np.float32(colour[channel])
        self.labels[covered] = LABEL[name]

    def from_centre(self, ring: Ring) -> Field:
        """Return the distance from a ring's centre."""
        rows = (self.y - ring.y).astype(np.float32)[:, None]
        columns = (self.x - ring.x).astype(np.float32)[None, :]
        return np.asarray(np.sqrt(rows * rows + columns * columns), dtype=np.float32)


def _tent(distance: Field, width_px: float) -> Field:
    """Return 1 at distance 0, falling to 0 at `width_px` on both sides."""
    return np.clip(1 - np.abs(distance) * np.float32(1 / width_px), 0, 1)


def _ink(sheet: _Sheet, distance: Field, across: Field, half_width_px: float) -> Field:
    """Return how much ink a stroke leaves, 0..1.3: more at its rim, in streaks along it, less where the pen ran dry."""
    seed, um, y, x = sheet.layout.seed, sheet.um, sheet.y, sheet.x
    soft = np.clip(distance * np.float32(1 / (5 * um)) + np.float32(0.5), 0, 1)
    rim = np.clip(1 - distance * np.float32(1 / (0.22 * half_width_px)), 0, 1)
    hairs = np.arange(-40, 41)
    streak = np.interp(across * np.float32(12 / half_width_px), hairs, hash_unit(seed + 5, hairs)).astype(np.float32)
    wet = np.clip(np.float32(0.72) + np.float32(0.22) * slow(seed + 6, y, x, 500 * um, 3), 0.3, 1.1)
    grain = np.float32(0.06) * fractal(seed + 7, y, x, 24 * um, 2)
    body = wet * (np.float32(0.72) + np.float32(0.28) * streak)
    return np.asarray(soft * (body + np.float32(0.22) * rim + grain), dtype=np.float32)


def _pens(sheet: _Sheet) -> None:
    seed, um, y, x = sheet.layout.seed, sheet.um, sheet.y, sheet.x
    for name, stroke in sheet.layout.strokes:
        if stroke.reaches(y, x, 16 * um):
            distance = stroke.distance(y, x, fractal(seed + 8, y, x, 60 * um, 3))
            ink = _ink(sheet, distance, stroke.local(y, x)[1], stroke.half_width_px)
            sheet.add(ink, _INK[name], name, distance > 0)
    for name, circle in sheet.layout.circles:
        # No hand draws a true circle.
        bulge = slow(seed + 9, y, x, circle.radius_px) * np.float32(0.12 * circle.radius_px)
        across = sheet.from_centre(circle) + bulge - np.float32(circle.radius_px)
        distance = np.float32(circle.half_width_px) - np.abs(across)
        if distance.max() > -16 * um:
            sheet.add(_ink(sheet, distance, across, circle.half_width_px), _INK[name], name, distance > 0)


def _bubbles(sheet: _Sheet) -> None:
    """Draw total reflection: a dark rim that fades inwards, and a thin bright line outside it."""
    seed, um, y, x = sheet.layout.seed, sheet.um, sheet.y, sheet.x
    for bubble in sheet.layout.bubbles:
        radius = bubble.radius_px
        out = sheet.from_centre(bubble) - np.float32(radius)
        out += slow(seed + 10, y, x, 2 * radius) * np.float32(0.07 * radius)
        if out.min() > 20 * um:
            continue
        thin = np.clip(slow(seed + 13, y, x, radius) * np.float32(0.3) + np.float32(0.8), 0.25, 1.2)
        inwards = np.clip(1 + out * np.float32(1 / (14 * um)), 0, 1) * (out < 0)
        rim = np.float32(1.2) * _tent(out, 6 * um) + np.float32(0.55) * inwards * inwards
        density = thin * rim - np.float32(0.04) * _tent(out - np.float32(10 * um), 6 * um)
        density += np.clip(-out * np.float32(1 / (6 * um)), 0, 1) * np.float32(0.025)
        sheet.add(density, _BUBBLE_COLOUR, "bubble", out < 8 * um)


def _coverslip(sheet: _Sheet, edge: Edge) -> None:
    """Draw the edge as a line and its reflection, and smears of mounting medium outside."""
    seed, um, y, x = sheet.layout.seed, sheet.um, sheet.y, sheet.x
    rows = (y * edge.down - edge.offset_px).astype(np.float32)[:, None]
    beyond = rows + (x * edge.right).astype(np.float32)[None, :]
    beyond = beyond + slow(seed + 11, y, x, 900 * um) * np.float32(1.5 * um)
    if beyond.max() < -40 * um:
        return
    smear = np.clip(slow(seed + 12, y, x, 260 * um, 4) * np.float32(0.06) + np.float32(0.05), 0, 0.25)
    shadow = _tent(beyond, 35 * um)
    density = np.float32(0.75) * _tent(beyond, 5 * um) + np.float32(0.12) * shadow * shadow
    density += np.float32(0.22) * _tent(beyond - np.float32(22 * um), 9 * um)
    density += np.clip(beyond * np.float32(1 / (6 * um)), 0, 1) * smear
    sheet.add(density, _EDGE_COLOUR, "coverslip", beyond > -8 * um)


def overlays(layout: Layout, y: Axis, x: Axis, labels: NDArray[np.uint8]) -> list[Field]:
    """Return the optical density of all that lies above the tissue, (y, x) for red, green, blue; empty if nothing does.

    `labels`, (y, x) uint8 on the same lattice, is marked where an artefact covers the slide.
    """
    sheet = _Sheet(layout, y, x, labels)
    _pens(sheet)
    _bubbles(sheet)
    if layout.edge is not None:
        _coverslip(sheet, layout.edge)
    return sheet.density


def stripes(layout: Layout, y: Axis, x: Axis, channel: int) -> Field:
    """Return the factor, (y, x), by which a badly calibrated scanner lights its stripes and fields of view."""
    column = np.floor(x / _STRIPE_PX).astype(np.int64)[None, :]
    row = np.floor(y / _FIELD_OF_VIEW_PX).astype(np.int64)[:, None]
    darker = hash_unit(layout.seed + 20 + channel, column) * 0.008 + hash_unit(layout.seed + 23, column) * 0.045
    darker = darker + hash_unit(layout.seed + 24, row, column) * 0.012
    # Vignetting: a stripe is a little darker towards its sides.
    within = np.abs(x / _STRIPE_PX - column - 0.5)
    return np.asarray(1 - darker - 0.05 * within * within, dtype=np.float32)
