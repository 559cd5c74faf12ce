"""Stain colours in optical density: how one slide's haematoxylin and eosin become another's, or a DAB stain.

Beer and Lambert: the optical density of tissue is linear in the amounts of its stains, so a slide is unmixed with the
stain vectors of its own laboratory and mixed again with others (Ruifrok and Johnston 2001; augmentation by perturbed
vectors and amounts: Tellez et al. 2018). All colours here are transmittance, (..., 3) in 0..1, RGB.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Colours = NDArray[np.float32]

# Of CMU-1-Small-Region.svs: eosin is the 99th percentile of Macenko's angle; its haematoxylin end is drawn aside by
# green debris, so it is taken half way to the usual vector. Third row: what is left over.
_SOURCE = np.array([[0.70, 0.64, 0.32], [0.16, 0.91, 0.38], [0.0, -0.45, 0.89]])
_HAEMATOXYLIN = np.array([0.65, 0.70, 0.29])
_EOSIN = np.array([0.12, 0.92, 0.34])
_DAB = np.array([0.34, 0.58, 0.74])
_DENSEST = 3.0


@dataclass(frozen=True, slots=True)
class Stain:
    """A linear map of optical density, (3, 3): density of the source slide times `matrix` is the new density."""

    matrix: NDArray[np.float64]

    def apply(self, transmittance: Colours) -> Colours:
        """Return the colours, (..., 3), of the same tissue in this stain."""
        density = -np.log(np.clip(transmittance, np.float32(np.exp(-_DENSEST)), 1))
        out = np.empty_like(density)
        for channel in range(3):
            weights = self.matrix[:, channel].astype(np.float32)
            # Element by element: a matrix product would round differently on another machine.
            total = density[..., 0] * weights[0] + density[..., 1] * weights[1] + density[..., 2] * weights[2]
            out[..., channel] = np.exp(-np.maximum(total, 0))
        return out


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    positive = np.maximum(vector, 0.01)
    return np.asarray(positive / np.linalg.norm(positive))


def _mix(amounts: NDArray[np.float64], vectors: NDArray[np.float64]) -> Stain:
    """Unmix the source (haematoxylin, eosin, rest) into new amounts, (3, n), and mix those with `vectors`, (n, 3)."""
    return Stain(np.linalg.inv(_SOURCE) @ amounts @ vectors)


def haematoxylin_eosin(random: np.random.Generator, strength: float = 1.0) -> Stain:
    """Draw the H&E of another laboratory: both vectors turned by a few degrees, both amounts changed."""
    haematoxylin = _unit(_HAEMATOXYLIN + random.uniform(-0.10, 0.10, 3) * [1, 0.7, 1])
    eosin = _unit(_EOSIN + random.uniform(-0.1, 0.1, 3) * [1, 1, 1.4])
    rest = _unit(_SOURCE[2] + 0.5)
    amounts = np.diag([random.uniform(0.6, 1.2), random.uniform(0.5, 1.1), 0.5]) * strength
    return _mix(amounts, np.stack([haematoxylin, eosin, rest]))


def pale(random: np.random.Generator) -> Stain:
    """Draw an H&E so faint that tissue is about 3 % darker than glass: bleached, or hardly stained."""
    # Mean density of the source's tissue is about 0.4 over the three channels.
    return haematoxylin_eosin(random, strength=random.uniform(0.07, 0.11))


def immunohistochemistry(random: np.random.Generator) -> tuple[Stain, Stain]:
    """Draw a DAB stain over pale haematoxylin; return (negative tissue, positive tissue)."""
    haematoxylin = _unit(np.array([0.68, 0.60, 0.30]) + random.uniform(-0.05, 0.05, 3))
    dab = _unit(_DAB + random.uniform(-0.06, 0.06, 3))
    blue, background = random.uniform(0.30, 0.45), random.uniform(0.10, 0.16)
    vectors = np.stack([haematoxylin, dab])
    negative = np.array([[blue, 0.02], [background, 0.06], [0.0, 0.0]])
    nuclear = random.uniform(0.4, 0.8)
    positive = np.array([[0.15, nuclear], [0.05, random.uniform(0.3, 0.75)], [0.0, 0.0]])
    return _mix(negative, vectors), _mix(positive, vectors)
