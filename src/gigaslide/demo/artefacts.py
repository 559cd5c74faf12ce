"""What goes wrong on real slides: the names, and where on one slide each of them lies.

Ink, bubbles, the coverslip's edge and scanner stripes are drawn by `overlays.py`, dust by `specks.py`, folds by
`tissue.py`, poor focus by `slide.py`; pale, immunohistochemical and fatty slides are so as a whole.
"""

from dataclasses import dataclass

import numpy as np

from gigaslide.demo.shapes import Piece

NAMES = (
    "plain",
    "pale",
    "ihc",
    "fat",
    "fold",
    "blur",
    "pen_black",
    "pen_green",
    "pen_blue",
    "dust",
    "bubble",
    "coverslip",
    "stitching",
)
"""The label of an artefact in `<slide>_artefacts.tif` is its place here; 0 is none."""

LABEL = {name: number for number, name in enumerate(NAMES)}

PENS = ("pen_black", "pen_green", "pen_blue")
WHOLE_SLIDE = ("pale", "ihc", "stitching")

_BLUR_AREA_UM2 = 3e7
_Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class Ring:
    """A pen's circle, or a bubble (of no width): centre, radius and half width of the line, px."""

    y: float
    x: float
    radius_px: float
    half_width_px: float = 0.0


@dataclass(frozen=True, slots=True)
class Edge:
    """The coverslip's edge: pixels with `down * y + right * x > offset_px` lie outside the coverslip."""

    down: float
    right: float
    offset_px: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the artefacts of one slide are; `strokes` and `circles` with the name of their pen."""

    seed: int
    mpp_um_per_px: float
    names: tuple[str, ...]
    strokes: tuple[tuple[str, Piece], ...]
    circles: tuple[tuple[str, Ring], ...]
    folds: tuple[Piece, ...]
    blurs: tuple[Piece, ...]
    bubbles: tuple[Ring, ...]
    edge: Edge | None


@dataclass(frozen=True, slots=True)
class _Room:
    """What there is to place artefacts on: the slide's size, px per um, and its larger pieces of tissue."""

    height_px: int
    width_px: int
    um: float
    pieces: tuple[Piece, ...]

    @property
    def side_px(self) -> int:
        return min(self.height_px, self.width_px)

    def near_tissue(self, random: _Random) -> tuple[float, float]:
        """Draw a place in or beside a piece."""
        piece = self.pieces[random.integers(len(self.pieces))]
        along = random.uniform(-0.8, 0.8) * piece.half_length_px
        out = random.uniform(-1, 1) * piece.half_width_px
        y = piece.y + along * np.sin(piece.angle) + out * np.cos(piece.angle)
        x = piece.x + along * np.cos(piece.angle) - out * np.sin(piece.angle)
        inside_y = np.clip(y, 0.05 * self.height_px, 0.95 * self.height_px)
        inside_x = np.clip(x, 0.05 * self.width_px, 0.95 * self.width_px)
        return float(inside_y), float(inside_x)


def _pen(random: _Random, room: _Room) -> tuple[list[Piece], list[Ring]]:
    """Draw one or two strokes of one pen, and often a circle, as round a region of interest."""
    half_width = min(330 * room.um, 0.024 * room.side_px) * random.uniform(0.8, 1.2)
    circles = []
    if random.random() < 0.5:
        radius = min(2600 * room.um, random.uniform(0.2, 0.33) * room.side_px)
        circles.append(Ring(*room.near_tissue(random), radius, half_width * 0.75))
    strokes = []
    for _ in range(int(random.integers(1, 3))):
        y, x = room.near_tissue(random)
        length = min(9000 * room.um, random.uniform(0.35, 0.9) * room.side_px)
        bend, wave = random.uniform(-0.12, 0.12) * length, length * random.uniform(0.9, 1.8)
        angle = random.uniform(0, np.pi)
        strokes.append(Piece(y, x, angle, length / 2, half_width, bend, wave, min(half_width * 0.035, 5 * room.um)))
    return strokes, circles


def _folds(random: _Random, room: _Room) -> list[Piece]:
    """Lay a fold across every other large piece, two across an only one."""
    found = []
    for piece in room.pieces[::2] if len(room.pieces) > 1 else room.pieces * 2:
        along = random.uniform(-0.6, 0.6) * piece.half_length_px
        y, x = piece.y + along * np.sin(piece.angle), piece.x + along * np.cos(piece.angle)
        length = piece.half_width_px * random.uniform(1.2, 2.2)
        width = min(45 * room.um, 0.02 * room.side_px) * random.uniform(0.6, 1.1)
        angle = piece.angle + np.pi / 2 + random.uniform(-0.7, 0.7)
        found.append(Piece(y, x, angle, length / 2, width, 0.12 * length, length * 1.4, width * 0.12, 0.7))
    return found


def _blurs(random: _Random, room: _Room) -> list[Piece]:
    """Put a round area out of focus on every 30 mm2."""
    found = []
    for _ in range(max(1, round(room.height_px * room.width_px / room.um**2 / _BLUR_AREA_UM2))):
        y, x = room.near_tissue(random)
        radius = min(1200 * room.um, random.uniform(0.16, 0.26) * room.side_px)
        found.append(Piece(y, x, 0.0, radius, radius, 0.0, 1.0, radius * 0.1))
    return found


def _bubbles(random: _Random, room: _Room) -> list[Ring]:
    """Draw up to five bubbles of 40 to 500 um, half of them near tissue; those that would touch have run together."""
    found: list[Ring] = []
    for _ in range(int(random.integers(2, 6))):
        anywhere = random.random() * room.height_px, random.random() * room.width_px
        y, x = room.near_tissue(random) if random.random() < 0.5 else anywhere
        radius = min(float(np.exp(random.uniform(np.log(40), np.log(500)))) * room.um, 0.16 * room.side_px)
        if all(np.hypot(y - b.y, x - b.x) > radius + b.radius_px + 30 * room.um for b in found):
            found.append(Ring(y, x, radius))
    return found


def _edge(random: _Random, room: _Room) -> Edge:
    """Draw the coverslip's edge near one side of the slide, a little askew."""
    turn = random.integers(4) * np.pi / 2 + random.uniform(-0.04, 0.04)
    down, right = float(np.sin(turn)), float(np.cos(turn))
    across = room.height_px if abs(down) > abs(right) else room.width_px
    inset = min(700 * room.um, random.uniform(0.02, 0.05) * room.side_px)
    centre = down * room.height_px / 2 + right * room.width_px / 2
    return Edge(down, right, centre + across / 2 - inset)


def lay_out(
    random: _Random, names: tuple[str, ...], shape: tuple[int, int], mpp_um_per_px: float, pieces: tuple[Piece, ...]
) -> Layout:
    """Place the artefacts `names` on a slide of `shape` (y, x) px with tissue `pieces`."""
    um = 1 / mpp_um_per_px
    large = tuple(p for p in pieces if p.half_width_px > 90 * um) or pieces[:1]
    room = _Room(*shape, um, large)
    pens = [(name, *_pen(random, room)) for name in names if name in PENS]
    return Layout(
        seed=int(random.integers(1 << 40)),
        mpp_um_per_px=mpp_um_per_px,
        names=names,
        strokes=tuple((name, stroke) for name, strokes, _ in pens for stroke in strokes),
        circles=tuple((name, circle) for name, _, circles in pens for circle in circles),
        folds=tuple(_folds(random, room)) if "fold" in names else (),
        blurs=tuple(_blurs(random, room)) if "blur" in names else (),
        bubbles=tuple(_bubbles(random, room)) if "bubble" in names else (),
        edge=_edge(random, room) if "coverslip" in names else None,
    )
