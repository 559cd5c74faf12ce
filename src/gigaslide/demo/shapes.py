"""Where tissue is: pieces with organic outlines, holes and strands, and which kind of tissue lies where.

Everything is a signed distance in pixels, positive inside, evaluated on the 4 px lattice: bent capsules per piece,
their outlines deformed by fractal noise, then gland lumens, vessels and cracks cut out. Distances are not exact
(noise adds to them), but near an outline their slope stays near one, so that an edge drawn one pixel wide is about
one pixel wide.
"""

from dataclasses import dataclass

import numpy as np

from gigaslide.demo.noise import Axis, Field, fractal, hash_unit, slow

FAR_UM = 60.0
"""Outside, distances end here: a piece farther away than this from a window is not evaluated.

Half of it is more than ragged edges (12 um) and frayed fibres (`tissue.FRAY_UM` / 2) reach together, so that a window
without tissue can be told before they are evaluated.
"""
_VESSEL_GRID_UM = 260.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A bent capsule: centre and sizes in px; the axis swings by `bend_px` with wavelength `wave_px`."""

    y: float
    x: float
    angle: float
    half_length_px: float
    half_width_px: float
    bend_px: float
    wave_px: float
    rough_px: float
    taper: float = 0.0

    def reaches(self, y: Axis, x: Axis, margin_px: float) -> bool:
        """Tell whether a distance above `-margin_px` is possible in the window of rows `y` and columns `x`."""
        reach = self.half_length_px + self.half_width_px + abs(self.bend_px) + 3 * self.rough_px + margin_px
        dy = max(y[0] - self.y, self.y - y[-1], 0.0)
        dx = max(x[0] - self.x, self.x - x[-1], 0.0)
        return bool(dy * dy + dx * dx <= reach * reach)

    def local(self, y: Axis, x: Axis) -> tuple[Field, Field]:
        """Return the coordinates along and across the bent axis, px, both (y, x)."""
        rows, columns = (y - self.y).astype(np.float32)[:, None], (x - self.x).astype(np.float32)[None, :]
        cosine, sine = np.float32(np.cos(self.angle)), np.float32(np.sin(self.angle))
        along = columns * cosine + rows * sine
        across = rows * cosine - columns * sine
        # A parabola-like swing, cheap and smooth: the sine of a few periods needs no more than this accuracy.
        across -= np.float32(self.bend_px) * swing(along * np.float32(1 / self.wave_px))
        return along, across

    def distance(self, y: Axis, x: Axis, rough: Field) -> Field:
        """Return the signed distance, (y, x), px, its outline shifted by `rough_px` times the noise `rough`."""
        along, across = self.local(y, x)
        end = np.maximum(np.abs(along) - np.float32(self.half_length_px), 0)
        width = np.float32(self.half_width_px)
        if self.taper:
            share = np.minimum(np.abs(along) * np.float32(1 / self.half_length_px), 1)
            width = width * (1 - np.float32(self.taper) * share * share)
        distance: Field = width - np.sqrt(across * across + end * end)
        if self.rough_px:
            distance += np.float32(self.rough_px) * np.clip(rough, -3, 3)
        return distance


def swing(turns: Field) -> Field:
    """Return a smooth wave of period 1 and height 1, by multiplication only (the same bits on every machine)."""
    phase = turns - np.floor(turns)
    phase = phase * 2 - 1
    return np.asarray(phase * (1 - np.abs(phase)) * 4, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The tissue of one slide: its pieces, and the seeds and scales of the fields inside them."""

    seed: int
    mpp_um_per_px: float
    pieces: tuple[Piece, ...]
    fat_share: float
    gland_share: float
    gland_um: float
    epidermis: bool


@dataclass(frozen=True, slots=True)
class Regions:
    """Signed distances in px on a lattice, each (y, x) float32: `tissue`, and within it `fat`, `epithelium`, `keratin`.

    `fray` in 0..1 says how far the outline follows the fibres.
    """

    tissue: Field
    fat: Field
    epithelium: Field
    keratin: Field
    fray: Field


def _piece(random: np.random.Generator, y: float, x: float, length_px: float, width_px: float, angle: float) -> Piece:
    return Piece(
        y, x, angle, length_px / 2, width_px / 2,
        bend_px=float(random.uniform(-0.22, 0.22) * length_px),
        wave_px=float(random.uniform(1.3, 2.4) * length_px),
        rough_px=float(width_px * random.uniform(0.05, 0.11)),
    )  # fmt: skip


def _satellites(random: np.random.Generator, parent: Piece, mpp: float) -> list[Piece]:
    """Return strands that leave a piece, and crumbs that lie round it."""
    found = []
    for _ in range(int(random.integers(4, 9))):
        along = random.uniform(-1, 1) * parent.half_length_px
        side = random.choice((-1, 1))
        out = side * parent.half_width_px * random.uniform(0.85, 1.5)
        cosine, sine = np.cos(parent.angle), np.sin(parent.angle)
        y, x = parent.y + along * sine + out * cosine, parent.x + along * cosine - out * sine
        if random.random() < 0.5:
            length = random.uniform(120, 420) / mpp
            width = random.uniform(9, 24) / mpp
            angle = parent.angle + side * random.uniform(0.3, 2.6)
            found.append(
                Piece(
                    y,
                    x,
                    angle,
                    length / 2,
                    width / 2,
                    random.uniform(-0.2, 0.2) * length,
                    length * 1.2,
                    width * 0.12,
                    0.6,
                )
            )
        else:
            size = float(np.exp(random.uniform(np.log(16), np.log(130)))) / mpp
            found.append(_piece(random, y, x, size * random.uniform(0.2, 1.5), size, random.uniform(0, 3.1)))
    return found


def lay_pieces(random: np.random.Generator, height_px: int, width_px: int, mpp_um_per_px: float) -> tuple[Piece, ...]:
    """Place tissue on a slide: serial strips or blobs up to some mm across, with strands and crumbs round them.

    A slide larger than about 5 mm is divided into cells, one large piece in most of them.
    """
    cell_px = 5200 / mpp_um_per_px
    rows, columns = max(1, round(height_px / cell_px)), max(1, round(width_px / cell_px))
    cell_y, cell_x = height_px / rows, width_px / columns
    lying = cell_x > cell_y
    strip = random.random() < 0.5
    found: list[Piece] = []
    for row in range(rows):
        for column in range(columns):
            if rows * columns > 2 and random.random() < 0.12:
                continue
            y = (row + random.uniform(0.4, 0.6)) * cell_y
            x = (column + random.uniform(0.4, 0.6)) * cell_x
            long_px, short_px = max(cell_x, cell_y), min(cell_x, cell_y)
            angle = (0.0 if lying else np.pi / 2) + random.uniform(-0.45, 0.45)
            if strip:
                # One long piece, or two beside each other as from one needle.
                count = int(random.integers(1, 3))
                width = short_px * random.uniform(0.34, 0.5) / count
                for n in range(count):
                    away = (n - (count - 1) / 2) * width * 1.9
                    oy, ox = away * np.cos(angle), -away * np.sin(angle)
                    found.append(_piece(random, y + oy, x + ox, long_px * random.uniform(0.5, 0.85), width, angle))
            else:
                width = short_px * random.uniform(0.45, 0.62)
                found.append(_piece(random, y, x, long_px * random.uniform(0.1, 0.35), width, angle))
    large = list(found)
    for piece in large:
        found += _satellites(random, piece, mpp_um_per_px)
    return tuple(found)


def _vessels(anatomy: Anatomy, y: Axis, x: Axis) -> Field:
    """Return the signed distance (positive inside) of round and oval holes, 12 to 55 um in radius, hashed per cell."""
    cell = _VESSEL_GRID_UM / anatomy.mpp_um_per_px
    seed = anatomy.seed + 31
    field = np.full((len(y), len(x)), -FAR_UM / anatomy.mpp_um_per_px, dtype=np.float32)
    for row in range(int(y[0] // cell) - 1, int(y[-1] // cell) + 2):
        for column in range(int(x[0] // cell) - 1, int(x[-1] // cell) + 2):
            there, cy, cx, size, flat, turn = (float(hash_unit(seed + k, row, column)) for k in range(6))
            if there > 0.3:
                continue
            radius = (10 + 45 * size**3) / anatomy.mpp_um_per_px
            rows = (y - (row + cy) * cell).astype(np.float32)[:, None]
            columns = (x - (column + cx) * cell).astype(np.float32)[None, :]
            cosine, sine = np.float32(np.cos(3.1 * turn)), np.float32(np.sin(3.1 * turn))
            u, v = columns * cosine + rows * sine, (rows * cosine - columns * sine) * np.float32(1 + 1.2 * flat)
            np.maximum(field, np.float32(radius) - np.sqrt(u * u + v * v), out=field)
    return field


def regions(anatomy: Anatomy, y: Axis, x: Axis) -> Regions:
    """Evaluate the tissue of a slide at lattice rows `y` and columns `x` (px, ascending)."""
    um, seed = 1 / anatomy.mpp_um_per_px, anatomy.seed
    shape = (len(y), len(x))
    far = np.float32(FAR_UM * um)
    tissue = np.full(shape, -far, dtype=np.float32)
    rough = slow(seed, y, x, 420 * um, 4, 0.55)
    for piece in anatomy.pieces:
        if piece.reaches(y, x, float(far)):
            np.maximum(tissue, piece.distance(y, x, rough), out=tissue)
    nothing = np.full(shape, -far, dtype=np.float32)
    if tissue.max() <= -far / 2:
        return Regions(tissue, nothing, nothing, nothing, nothing)

    fray = np.clip(slow(seed + 1, y, x, 260 * um) * np.float32(0.45) + np.float32(0.5), 0.08, 1)
    tissue += fray * np.float32(3 * um) * np.clip(fractal(seed + 2, y, x, 26 * um, 4, 0.6), -4, 4)
    deep = tissue

    # Glands: islands of epithelium; where an island is thick, its middle is a lumen.
    gland = np.float32(anatomy.gland_um * um)
    islands = slow(seed + 3, y, x, anatomy.gland_um * um, 2, 0.35)
    zone = slow(seed + 4, y, x, 700 * um) + np.float32(anatomy.gland_share * 3 - 2.2)
    islands = (islands + np.minimum(zone, 0) * 2 - np.float32(0.35)) * np.float32(0.5) * gland
    lumen = islands - np.float32(6 * um) - np.float32(0.28) * gland
    lumen -= fractal(seed + 5, y, x, 40 * um, 2) * np.float32(3.5 * um)
    epithelium, keratin = islands, nothing
    if anatomy.epidermis:
        # A band along one side of the outline, with rete ridges towards the stroma and a horny layer outside.
        side = slow(seed + 6, y, x, 1100 * um) * np.float32(160 * um) - np.float32(10 * um)
        thick = np.float32(62 * um) + slow(seed + 7, y, x, 85 * um) * np.float32(17 * um)
        epithelium = np.maximum(epithelium, np.minimum(thick - deep, side))
        horny = np.float32(20 * um) + slow(seed + 13, y, x, 320 * um) * np.float32(13 * um)
        keratin = np.minimum(horny - deep, side - np.float32(12 * um))
        keratin += fractal(seed + 14, y, x, 30 * um, 2) * np.float32(3 * um)
    fat = slow(seed + 8, y, x, 620 * um) + np.float32(0.25) * slow(seed + 9, y, x, 150 * um)
    # A small slide can lie in a valley of the field: the middle of the first piece is at least of average fat.
    middle = slow(seed + 8, np.array([anatomy.pieces[0].y]), np.array([anatomy.pieces[0].x]), 620 * um)[0, 0]
    fat = (fat - np.minimum(middle, 0) + np.float32(anatomy.fat_share * 4 - 2.4)) * np.float32(250 * um)
    # Fat lies in lobules between septa, and never right under epithelium.
    septa = np.abs(slow(seed + 15, y, x, 520 * um, 4, 0.55)) * np.float32(220 * um) - np.float32(7 * um)
    fat = np.minimum(np.minimum(fat, septa), -epithelium - np.float32(45 * um))

    cracks_here = slow(seed + 10, y, x, 500 * um) - np.float32(0.9)
    cracks = slow(seed + 11, y, x, 300 * um, 3, 0.45)
    cracks = np.float32(12 * um) - np.abs(cracks) * np.float32(130 * um)
    cracks = np.minimum(cracks, cracks_here * np.float32(200 * um))
    holes = np.maximum(np.maximum(_vessels(anatomy, y, x), cracks), lumen)
    # Collagen frays; epithelium keeps together, and so do the vacuoles at the rim of fat.
    firm = np.maximum(epithelium, fat) * np.float32(1 / (12 * um))
    fray = fray * np.clip(np.float32(0.6) - firm, 0.25, 1)
    tissue = np.maximum(np.minimum(tissue, -holes), -far)
    return Regions(tissue, fat, epithelium, keratin, fray)
