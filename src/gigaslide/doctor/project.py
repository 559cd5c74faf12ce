"""The project in this folder, tried: settings, a store, a slide, MLflow's database."""

import os
import sqlite3
import tempfile
import urllib.request
from contextlib import closing
from pathlib import Path

from gigaslide import config, mlflow_server, tracking
from gigaslide.doctor.finding import Check, Found
from gigaslide.errors import GigaslideError, UsageError
from gigaslide.geometry import Window

# JPEG changes a smooth picture by a few grey values.
_JPEG_GREY_VALUES = 12
# MLflow holds the database for a moment only.
_PATIENCE_S = 2.0
_ANSWER_S = 10.0


def checks() -> list[Check]:
    """Return the checks of the present folder."""
    data = Path("data")
    url = _server(config.PARAMS_FILE)
    return [
        Check("params.yaml", lambda: params(config.PARAMS_FILE)),
        Check("store", lambda: store(data if data.is_dir() else Path())),
        Check("slide", lambda: slide(Path(tempfile.gettempdir()))),
        Check("MLflow runs", lambda: server(url) if url else database(tracking.FOLDER)),
    ]


def params(path: Path) -> Found:
    """Read the settings."""
    if not path.exists():
        return Found(
            "warning",
            f"not in {Path.cwd()}: the other checks used the default network",
            "run this in the project's folder",
        )
    try:
        config.load(path)
    except UsageError as error:
        return Found("fails", str(error), f"correct {path}")
    return Found("ok", "every setting is known and in range")


def store(folder: Path) -> Found:
    """Write a store of one chunk, and read it back."""
    import numpy as np

    from gigaslide.slides.store import CHUNK_PX, SCHEMA_VERSION, StoreWriter, open_store

    whole = Window.of(0, 0, CHUNK_PX, CHUNK_PX)
    image = np.random.default_rng(0).integers(0, 256, (*whole.shape, 3), np.uint8)
    mask = image[..., 0] & np.uint8(1)
    attributes = {
        "schema_version": SCHEMA_VERSION,
        "name": "doctor",
        "shape_px": list(whole.shape),
        "region_names": [],
        "mpp_um_per_px": None,
        "glass_rgb": [255, 255, 255],
    }
    where = folder.resolve()
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=folder) as temporary:
            writer = StoreWriter(Path(temporary) / "doctor.zarr", whole.shape, CHUNK_PX, with_regions=False)
            writer.write(whole, image=image, mask=mask)
            writer.finish(attributes)
            found = open_store(writer.path)
            is_equal = np.array_equal(found.read_image(whole), image) and np.array_equal(found.read_mask(whole), mask)
    except (OSError, ValueError, GigaslideError) as error:  # TensorStore's are ValueErrors
        return Found("fails", f"a store in {where} cannot be written and read: {error}", "free or unlock that folder")
    if not is_equal:
        return Found("fails", f"a store in {where} reads back other pixels than were written", "use another disk")
    return Found("ok", f"written to {where} and read back")


def slide(folder: Path) -> Found:
    """Write a TIFF of one tile, and read it as a slide through OpenSlide."""
    import numpy as np

    from gigaslide.demo.tiff import TILE_PX, write_pyramid
    from gigaslide.slides.reader import open_slide

    rows, columns = np.mgrid[:TILE_PX, :TILE_PX] // 2 + 64
    tile = np.stack([rows, columns, np.full_like(rows, 128)], axis=-1).astype(np.uint8)
    with tempfile.TemporaryDirectory(prefix="gigaslide-doctor-", dir=folder) as temporary:
        path = Path(temporary) / "doctor.tiff"
        write_pyramid(path, tile.shape[:2], 0.5, [tile])
        reader = open_slide(path)
        pixels, _ = reader.read(Window.of(0, 0, *reader.shape))
        reader.close()
    difference = int(np.abs(pixels.astype(int) - tile).max()) if pixels.shape == tile.shape else 255
    if difference > _JPEG_GREY_VALUES:
        return Found(
            "fails",
            f"a small TIFF slide reads back wrong by {difference} grey values",
            "run `make setup`; an OpenSlide of the system may be in the way of the package's own",
        )
    return Found("ok", "a small TIFF slide was written and read by OpenSlide")


def _server(params: Path) -> str | None:
    """Return the address of the MLflow server; None without one. What is wrong with the settings, `params` says."""
    try:
        return mlflow_server.address(config.load(params).tracking.uri if params.exists() else None)
    except UsageError:
        return None


def server(url: str) -> Found:
    """Ask MLflow's server how it is."""
    try:
        urllib.request.urlopen(f"{url}/health", timeout=_ANSWER_S).close()
    except (OSError, ValueError) as error:
        return Found("fails", f"{url} does not answer: {error}", "start it (docs/cluster.md), or correct its address")
    return Found("ok", f"{url} answers")


def database(folder: Path) -> Found:
    """Open MLflow's SQLite file for writing, without MLflow: its import takes seconds."""
    path = folder / "mlflow.db"
    if not path.exists():
        parent = folder if folder.is_dir() else Path()
        if not os.access(parent, os.W_OK):
            return Found("fails", f"{parent.resolve()} cannot be written", "unlock that folder")
        return Found("ok", f"{path} is not there yet; the first run makes it")
    try:
        with closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=_PATIENCE_S)
        ) as connection:
            (runs,) = connection.execute("select count(*) from runs where lifecycle_stage = 'active'").fetchone()
            connection.execute("begin immediate")
            connection.rollback()
    except sqlite3.Error as error:
        if "locked" in str(error):
            return Found("warning", f"{path} is being written by another process", "if it stays so, end that process")
        return Found("fails", f"{path} cannot be used: {error}", f"move {folder} away: the next run makes a new one")
    return Found("ok", f"{path} opens, {runs} run{'' if runs == 1 else 's'}")
