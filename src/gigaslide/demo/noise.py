"""Smooth random fields that are pure functions of (seed, position), and their upsampling to pixels.

Value noise on a cubic B-spline lattice: every lattice node has a random value hashed from (seed, row, column), and a
field is the tensor-product spline through them. A window therefore needs nothing but its own coordinates, and the
same position gives the same bits in whatever window it is asked for: all arithmetic is element by element, in a fixed
order, never a matrix product or a running sum, whose rounding would depend on the window.
"""

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
Axis = NDArray[np.float64]

LATTICE_PX = 4
"""Geometry is evaluated at every fourth row and column and interpolated linearly between."""

BLOCK_PX = LATTICE_PX * LATTICE_PX
"""Windows start and end at multiples of this, so that slow fields can be evaluated at every fourth lattice point."""

# Standard deviation of uniform(-1, 1) nodes seen through a 2-D cubic B-spline: sqrt(1/3) * mean(sum of weights^2).
_SPLINE_SD = 0.277


def hash_unit(seed: int, *keys: NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Return numbers in [0, 1), one per broadcast element of the integer `keys` (splitmix64 finaliser per key)."""
    start = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF
    state: NDArray[np.uint64] = np.array(start, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for key in keys:
            state = (state ^ np.asarray(key, dtype=np.int64).view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return np.asarray(state >> np.uint64(11)) * 2.0**-53


def _spline(position: Axis) -> tuple[NDArray[np.int64], list[Field]]:
    """Return the first of four nodes and the four cubic B-spline weights of each position (in node units)."""
    node = np.floor(position).astype(np.int64)
    t = position - node
    weights = [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3]
    return node - 1, [(w / 6).astype(np.float32) for w in weights]


def noise(seed: int, y: Axis, x: Axis, period_px: float) -> Field:
    """Return value noise of unit standard deviation, zero mean, at rows `y` and columns `x` (px): (len(y), len(x))."""
    rows, row_weights = _spline(np.asarray(y, dtype=np.float64) / period_px)
    columns, column_weights = _spline(np.asarray(x, dtype=np.float64) / period_px)
    row_nodes = np.arange(rows[0], rows[-1] + 4)[:, None]
    column_nodes = np.arange(columns[0], columns[-1] + 4)[None, :]
    values = ((hash_unit(seed, row_nodes, column_nodes) * 2 - 1) / _SPLINE_SD).astype(np.float32)
    rows, columns = rows - rows[0], columns - columns[0]
    by_row = sum(w[:, None] * values[rows + k] for k, w in enumerate(row_weights))
    field: Field = column_weights[0] * np.take(by_row, columns, axis=1)
    for k in (1, 2, 3):
        field += column_weights[k] * np.take(by_row, columns + k, axis=1)
    return field


def fractal(seed: int, y: Axis, x: Axis, period_px: float, octaves: int, gain: float = 0.5) -> Field:
    """Return the sum of `octaves` noises, each of half the period and `gain` times the height of the one before."""
    field = noise(seed, y, x, period_px)
    for octave in range(1, octaves):
        field += np.float32(gain**octave) * noise(seed + 7919 * octave, y, x, period_px / 2**octave)
    return field


def slow(seed: int, y: Axis, x: Axis, period_px: float, octaves: int = 1, gain: float = 0.5) -> Field:
    """Return `fractal` noise on a lattice (`lattice`), for periods of many lattice steps, at a sixteenth of the cost.

    Its axes are turned by an angle hashed from the seed: splines along the slide's own rows and columns would show as
    outlines with square corners.
    """
    coarse_y, coarse_x = y[::LATTICE_PX], x[::LATTICE_PX]
    field = np.zeros((len(coarse_y), len(coarse_x)), dtype=np.float32)
    for octave in range(octaves):
        key = seed + 7919 * octave
        field += np.float32(gain**octave) * _turned(key, coarse_y, coarse_x, period_px / 2**octave)
    return upsample(field, closed=True)


def _turned(seed: int, y: Axis, x: Axis, period_px: float) -> Field:
    """Return value noise of unit standard deviation whose lattice is turned by an angle hashed from the seed."""
    angle = float(hash_unit(seed, -1)) * 1.2 + 0.2
    cosine, sine = np.cos(angle) / period_px, np.sin(angle) / period_px
    rows, row_weights = _spline(y[:, None] * cosine - x[None, :] * sine)
    columns, column_weights = _spline(y[:, None] * sine + x[None, :] * cosine)
    top, left = int(rows.min()), int(columns.min())
    height, width = int(rows.max()) - top + 4, int(columns.max()) - left + 4
    nodes = hash_unit(seed, np.arange(top, top + height)[:, None], np.arange(left, left + width)[None, :])
    values = ((nodes * 2 - 1) / _SPLINE_SD).astype(np.float32).ravel()
    index = (rows - top) * width + (columns - left)
    field = np.zeros(index.shape, dtype=np.float32)
    for j in range(4):
        line = column_weights[0] * values.take(index + j * width)
        for k in (1, 2, 3):
            line += column_weights[k] * values.take(index + (j * width + k))
        field += row_weights[j] * line
    return field


def lattice(start_px: int, stop_px: int) -> Axis:
    """Return the lattice positions that interpolate the pixels `start_px <= i < stop_px`, both multiples of 16."""
    if start_px % BLOCK_PX or stop_px % BLOCK_PX:
        raise ValueError(f"lattices start and end at multiples of {BLOCK_PX}; received {start_px}, {stop_px}")
    return np.arange(start_px, stop_px + LATTICE_PX, LATTICE_PX, dtype=np.float64)


def upsample(field: Field, closed: bool = False) -> Field:
    """Interpolate (m + 1, n + 1) points linearly to (4 m, 4 n), starting at the first point.

    `closed` keeps the last point too: (4 m + 1, 4 n + 1).
    """
    m, n = field.shape[0] - 1, field.shape[1] - 1
    rows = np.empty((m, LATTICE_PX, n + 1), dtype=np.float32)
    step = (field[1:] - field[:-1]) * np.float32(1 / LATTICE_PX)
    for k in range(LATTICE_PX):
        rows[:, k] = field[:-1] + step * np.float32(k)
    rows = rows.reshape(m * LATTICE_PX, n + 1)
    if closed:
        rows = np.concatenate([rows, field[-1:]])
    pixels = np.empty((len(rows), n, LATTICE_PX), dtype=np.float32)
    left = np.ascontiguousarray(rows[:, :-1])
    step = (rows[:, 1:] - left) * np.float32(1 / LATTICE_PX)
    for k in range(LATTICE_PX):
        pixels[:, :, k] = left
        left += step
    flat = pixels.reshape(len(rows), n * LATTICE_PX)
    return np.concatenate([flat, rows[:, -1:]], axis=1) if closed else flat
