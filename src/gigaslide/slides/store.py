"""Prepared stores: a Zarr v3 group per slide, read and written through TensorStore.

Arrays: `image` uint8 (y, x, 3), `mask` uint8 (y, x) with 0 glass, 1 tissue, 255 invalid, and, where the
cohort table names regions, `regions` uint8 (y, x). A shard is one file and one write; inside it, chunks of
512 px are read alone. What a store says of itself is in the group's attributes under "gigaslide". Nothing
in a store depends on when or in how many processes it was made: the same inputs give the same bytes.
"""

import json
import threading
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

from gigaslide import files
from gigaslide.errors import GigaslideError
from gigaslide.geometry import Window
from gigaslide.slides.arrays import Bytes, Doubles
from gigaslide.slides.bucket import S3Folder
from gigaslide.slides.density import density_table
from gigaslide.slides.shards import ShardEncoder

SCHEMA_VERSION = 1
CHUNK_PX = 512
# Decoded chunks that a process keeps. Tiles read some pixels of their neighbours' chunks, and without it each chunk is
# decoded four times; more spares a little more, and takes three times its size (TensorStore's own buffers).
CACHE_BYTES = 16 << 20
INDEX_FILE = "index.json"
_ATTRIBUTES_KEY = "gigaslide"
_COMPRESSION_LEVEL = 5
_WRITE_BYTES = 1 << 16  # at a time: Linux 6.18 took up to ten times as long for a whole shard in one piece
# lz4 reads at twice the speed of zstd here, for a tenth more bytes.
_CODEC = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": _COMPRESSION_LEVEL, "shuffle": "noshuffle"}}


@cache
def _context() -> Any:
    """Return the one context of all stores of this process: they share a cache of decoded chunks."""
    return tensorstore.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES}})


def _spec(path: Path | S3Folder, array: str) -> dict[str, Any]:
    if isinstance(path, S3Folder):
        return {"driver": "zarr3", "kvstore": (path / array).spec()}
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{(path / array).resolve()}/"}}


def _metadata(shape: tuple[int, int], shard_px: int, channels: tuple[int, ...]) -> dict[str, Any]:
    inner = [{"name": "bytes"}, _CODEC]
    index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    sharding = {
        "chunk_shape": [CHUNK_PX, CHUNK_PX, *channels],
        "codecs": inner,
        "index_codecs": index,
        "index_location": "end",
    }
    return {
        "shape": [*shape, *channels],
        "data_type": "uint8",
        "dimension_names": ["y", "x", "channel"][: 2 + len(channels)],
        "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [shard_px, shard_px, *channels]}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
    }


@dataclass(frozen=True, eq=False)
class Store:
    """A prepared slide, opened for reading; cheap to open and to pickle."""

    path: Path | S3Folder
    attributes: dict[str, Any]

    def __getstate__(self) -> dict[str, Any]:
        """Leave open arrays behind; they are opened again on first use, in a process that may be in another folder."""
        return {"path": self.path.absolute(), "attributes": self.attributes}

    @property
    def name(self) -> str:
        """The slide's name."""
        return str(self.attributes["name"])

    @property
    def shape(self) -> tuple[int, int]:
        """Size (y, x) of the stored area."""
        height, width = self.attributes["shape_px"]
        return height, width

    @property
    def mpp_um_per_px(self) -> float | None:
        """Size of a pixel in um, the geometric mean of both axes; None when the slide does not say."""
        mpp = self.attributes["mpp_um_per_px"]
        return None if mpp is None else float((mpp[0] * mpp[1]) ** 0.5)

    @property
    def glass_rgb(self) -> tuple[int, int, int]:
        """The colour of the slide's empty glass (slides/glass.py)."""
        red, green, blue = self.attributes["glass_rgb"]
        return red, green, blue

    @cached_property
    def density_table(self) -> Doubles:
        """The optical density of every grey value over the slide's glass, (3, 256) float64."""
        return density_table(self.glass_rgb)

    @property
    def region_names(self) -> tuple[str, ...]:
        """Names of the values 1, 2, ... of `read_regions`."""
        return tuple(self.attributes["region_names"])

    @cached_property
    def _image(self) -> Any:
        return self._open("image")

    @cached_property
    def _mask(self) -> Any:
        return self._open("mask")

    @cached_property
    def _regions(self) -> Any:
        return self._open("regions")

    def _open(self, array: str) -> Any:
        try:
            return tensorstore.open(
                _spec(self.path, array), read=True, context=_context(), recheck_cached_data="open"
            ).result()
        except (ValueError, FileNotFoundError) as error:
            raise self._damaged(error) from None

    def _read(self, array: Any, window: Window) -> Bytes:
        if window.clip(Window.of(0, 0, *self.shape)) != window:
            raise ValueError(f"a window lies inside the store's {self.shape} (y, x); received {window}")
        try:
            return np.asarray(array[window.slices].read().result(), np.uint8)
        except (ValueError, OSError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> GigaslideError:
        what = "is damaged" if isinstance(self.path, Path) else "is damaged or out of reach"
        return GigaslideError(f"the store {self.path} {what} ({error}): remove it and run `gigaslide prepare`")

    def read_image(self, window: Window) -> Bytes:
        """Return the pixels of a window inside the store: uint8 (y, x, 3)."""
        return self._read(self._image, window)

    def read_mask(self, window: Window) -> Bytes:
        """Return the labels of a window inside the store: uint8 (y, x), 0 glass, 1 tissue, 255 invalid."""
        return self._read(self._mask, window)

    def read_regions(self, window: Window) -> Bytes | None:
        """Return the regions of a window: uint8 (y, x), k for the k-th name; None without any."""
        return self._read(self._regions, window) if self.region_names else None


class _Encoders(threading.local):
    """Those of each thread."""

    def __init__(self) -> None:
        self.by_channels: dict[tuple[int, ...], ShardEncoder] = {}


class StoreWriter:
    """Writes a store at `path`, window by window, from any thread; it is a store once `finish` was called."""

    def __init__(self, path: Path, shape: tuple[int, int], shard_px: int, with_regions: bool) -> None:
        """Create the arrays, empty, or go on with those that are there."""
        self.path, self._shard_px = path, shard_px
        self._encoders = _Encoders()
        channels: dict[str, tuple[int, ...]] = {"image": (3,), "mask": ()}
        if with_regions:
            channels["regions"] = ()
        self._arrays = {
            name: tensorstore.open(
                {**_spec(path, name), "metadata": _metadata(shape, shard_px, last)}, create=True, open=True
            ).result()
            for name, last in channels.items()
        }

    def write(self, window: Window, **arrays: Bytes) -> None:
        """Write image=, mask= and regions= of a window that is one whole shard."""
        for name, values in arrays.items():
            encoded = self._encoder(values.shape[2:]).encode(values)
            path = self.path / self._shard(name, window)
            if encoded is None:
                files.remove(path)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not flushed to the disk, which would take most of the time. A store that a power cut spoilt is made again:
            # its files are not of the size that it says.
            with files.atomic_path(path) as temporary, temporary.open("wb") as file:
                # Through the buffer, which so large parts pass by: it writes on after the system took less than all,
                # as it does of what just fills a disk, and says no word.
                for start in range(0, len(encoded), _WRITE_BYTES):
                    file.write(encoded[start : start + _WRITE_BYTES].data)

    def _encoder(self, channels: tuple[int, ...]) -> ShardEncoder:
        encoders = self._encoders.by_channels
        if channels not in encoders:
            encoders[channels] = ShardEncoder(self._shard_px, CHUNK_PX, channels, _COMPRESSION_LEVEL)
        return encoders[channels]

    def shards(self, window: Window) -> list[Path]:
        """Return the files of a window, relative to the store; one that holds nothing but 0 is not there."""
        return [self._shard(name, window) for name in self._arrays]

    def _shard(self, name: str, window: Window) -> Path:
        row, column = window.y.start // self._shard_px, window.x.start // self._shard_px
        return Path(name, "c", str(row), str(column), *(["0"] if self._arrays[name].ndim > 2 else []))

    def finish(self, attributes: dict[str, Any]) -> None:
        """Write what the store says of itself; the size of its files is added."""
        count, size_bytes = stored_files(self.path)
        attributes = {**attributes, "files": count, "files_bytes": size_bytes}
        group = {"zarr_format": 3, "node_type": "group", "attributes": {_ATTRIBUTES_KEY: attributes}}
        files.write_text(self.path / "zarr.json", json.dumps(group, indent=1) + "\n")


def stored_files(path: Path) -> tuple[int, int]:
    """Return number and bytes of the files of a store's arrays."""
    sizes = [
        file.stat().st_size
        for array in ("image", "mask", "regions")
        for file in (path / array).rglob("*")
        if file.is_file()
    ]
    return len(sizes), sum(sizes)


def open_store(path: Path | S3Folder) -> Store:
    """Open a prepared store.

    Raises:
        GigaslideError: there is none, or another version of gigaslide wrote it in another layout.
    """
    try:
        group = json.loads((path / "zarr.json").read_text(encoding="utf-8"))
        attributes = group["attributes"][_ATTRIBUTES_KEY]
        schema = attributes["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GigaslideError(f"{path} is no prepared store ({error!r}): run `gigaslide prepare`") from None
    if schema != SCHEMA_VERSION:
        raise GigaslideError(
            f"the store {path} has layout {schema}, this version reads {SCHEMA_VERSION}: run `gigaslide prepare`"
        )
    return Store(path, attributes)


def open_split(folder: Path | S3Folder, split: str) -> list[Store]:
    """Open the stores of a split, in the order of the cohort table.

    Raises:
        GigaslideError: nothing was prepared in that folder, or a store in its index is damaged.
    """
    try:
        index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
        entries = [entry for entry in index["slides"] if entry["split"] == split]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GigaslideError(f"{folder} has no index of stores ({error!r}): run `gigaslide prepare`") from None
    return [open_store(folder / entry["store"]) for entry in entries]
