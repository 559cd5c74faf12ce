"""Fat, which the real slide does not show: adipocytes as pale round vacuoles between thin walls."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

_CELL_UM = 34.0
_WALL_UM = 1.5
_NUCLEI_PER_CELL = 0.5


def _sites(random: np.random.Generator, count: int, size: int) -> NDArray[np.float64]:
    """Return `count` points on a torus, kept apart by best-candidate sampling (Mitchell 1991)."""
    sites = random.uniform(0, size, (1, 2))
    for _ in range(count - 1):
        candidates = random.uniform(0, size, (6, 2))
        distance, _ = cKDTree(sites, boxsize=size).query(candidates)
        sites = np.concatenate([sites, candidates[[int(np.argmax(distance))]]])
    return sites


def atlas(random: np.random.Generator, collagen: NDArray[np.float32], mpp_um_per_px: float) -> NDArray[np.float32]:
    """Return a toroidal texture of transmittance, (y, x, 3), as large as `collagen`, which colours the walls."""
    size = collagen.shape[0]
    half = size // 2
    cell_px = _CELL_UM / mpp_um_per_px / 2
    sites = _sites(random, max(4, round((half / cell_px) ** 2)), half)
    y, x = np.mgrid[:half, :half].astype(np.float64)
    wobble = [ndimage.gaussian_filter(random.normal(0, 1, (half, half)), 12, mode="wrap") for _ in range(2)]
    points = np.stack([y + 50 * wobble[0], x + 50 * wobble[1]], axis=2).reshape(-1, 2) % half
    distance, _ = cKDTree(sites, boxsize=half).query(points, k=3)
    distance = 2 * distance.reshape(half, half, 3)  # back to full-size pixels
    # Distance to the wall, rounded off where three cells meet: a soft minimum over the two nearest neighbours.
    soft = 5 / mpp_um_per_px / 0.5 / 2
    gaps = np.exp(-(distance[..., 1:] - distance[..., :1]) / soft)
    gap = -soft * np.log(gaps.sum(axis=2)) / 2
    gap = ndimage.zoom(gap, 2, order=1, mode="grid-wrap", grid_mode=True)
    thickness = (
        _WALL_UM
        / mpp_um_per_px
        * (1 + 1.2 * ndimage.gaussian_filter(random.normal(0, 12, (size, size)), 20, mode="wrap"))
    )
    wall = np.clip((thickness - gap) / 1.6 + 0.5, 0, 1)[..., None].astype(np.float32)
    mean = collagen.reshape(-1, 3).mean(axis=0)
    matter = np.minimum(0.45 * collagen + 0.55 * mean, 1)
    haze = ndimage.gaussian_filter(random.normal(0, 1, (size, size)), 30, mode="wrap")
    vacuole = 1 - np.array([0.012, 0.035, 0.022]) * np.clip(1 + 25 * haze, 0.2, 2)[..., None]
    texture = (vacuole * (1 - wall) + matter * wall).astype(np.float32)
    return _with_nuclei(random, texture, gap, len(sites), mpp_um_per_px)


def _with_nuclei(
    random: np.random.Generator,
    texture: NDArray[np.float32],
    gap: NDArray[np.float64],
    cells: int,
    mpp_um_per_px: float,
) -> NDArray[np.float32]:
    """Press flat dark nuclei against the walls."""
    size = texture.shape[0]
    walls = np.argwhere(gap < 1)
    slope = np.stack(np.gradient(ndimage.gaussian_filter(gap, 2, mode="wrap")), axis=2)
    reach = round(8 / mpp_um_per_px)
    for cy, cx in walls[random.integers(len(walls), size=round(cells * _NUCLEI_PER_CELL))]:
        dy, dx = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float64)
        across = slope[(cy + 2) % size, (cx + 2) % size]
        across = across / max(float(np.hypot(*across)), 1e-6)
        long_px, short_px = random.uniform(3.5, 6) / mpp_um_per_px, random.uniform(1.4, 2.4) / mpp_um_per_px
        u, v = dy * across[0] + dx * across[1], -dy * across[1] + dx * across[0]
        inside = np.clip((1 - np.hypot(u / short_px, v / long_px)) * short_px + 0.5, 0, 1)[..., None]
        where = np.ix_((cy + dy[:, 0].astype(int)) % size, (cx + dx[0].astype(int)) % size)
        nucleus = np.array([0.30, 0.16, 0.42]) * random.uniform(0.8, 1.3)
        texture[where] = texture[where] * (1 - inside) + nucleus * inside
    return texture
