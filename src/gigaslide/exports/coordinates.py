"""Coordinates of patches in HDF5: a data set `coords` with attributes, as CLAM and TRIDENT keep them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gigaslide.files import atomic_path

_CHUNK_ROWS = 32  # CLAM's; it reads one row at a time


def write_coordinates(path: Path, yx_px: NDArray[np.int64], attributes: Mapping[str, Any]) -> None:
    """Write places atomically; `yx_px` is int64 (patches, 2), (y, x) of level 0; in the file it is (x, y)."""
    with atomic_path(path) as temporary, h5py.File(temporary, "w") as file:
        shape = (len(yx_px), 2)
        coords = file.create_dataset("coords", shape, np.int64, maxshape=(None, 2), chunks=(_CHUNK_ROWS, 2))
        coords[:] = yx_px[:, ::-1]
        for name, value in attributes.items():
            coords.attrs[name] = value
