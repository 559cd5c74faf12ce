"""One slide being looked at: its tiles, the layers over it, where they differ, and the corrections.

Everything here may be called from any thread. What takes long (the overview of a slide without levels, sampling the
masks, finding regions) runs beside them.
"""

import hashlib
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shapely

from gigaslide.config import Labels
from gigaslide.errors import GigaslideError
from gigaslide.files import sha256
from gigaslide.slides.labels import LabelSource, geojson_origin_yx_px
from gigaslide.slides.reader import SlideReader
from gigaslide.viewer.cache import TileCache
from gigaslide.viewer.corrected import Outlines, correct
from gigaslide.viewer.journal import Journal
from gigaslide.viewer.layers import CORRECTIONS, LayerTiles
from gigaslide.viewer.outlines import starting_outlines
from gigaslide.viewer.regions import Regions, find_regions
from gigaslide.viewer.save import write_corrected
from gigaslide.viewer.shares import Shares
from gigaslide.viewer.slide_tiles import SlideTiles
from gigaslide.viewer.strokes import parse_stroke

_CACHE_BYTES = 1 << 28
SLIDE = "slide"


@dataclass(frozen=True)
class Given:
    """What was given to the command, opened: a mask is its file and its labels."""

    reader: SlideReader
    mask: tuple[Path, LabelSource] | None
    truth: tuple[Path, LabelSource] | None
    save: Path
    labels: Labels


class Session:
    """See the module."""

    def __init__(self, given: Given) -> None:
        self.given = given
        prediction, truth = given.mask and given.mask[1], given.truth and given.truth[1]
        self.slide = SlideTiles(given.reader)
        self.shares = Shares(given.reader.level0_shape, prediction, truth)
        # Corrections begin with the prediction; without one, with the truth; without either, on an empty slide.
        self._start = given.mask or given.truth
        start = "prediction" if given.mask else "truth" if given.truth else None
        self.layers = LayerTiles(self.shares, start)
        self.layer_names = [
            name
            for name, is_there in (
                ("prediction", given.mask),
                ("truth", given.truth),
                ("disagreement", given.mask and given.truth),
                (CORRECTIONS, True),
            )
            if is_there
        ]
        about = {
            "gigaslide_corrections": 1,
            "slide": given.reader.path.name,
            "shape": list(given.reader.level0_shape),
            "mask": sha256(self._start[0]) if self._start else None,
        }
        self._journal = Journal(autosave_path(given.save), about, given.reader.level0_shape)
        self._cache = TileCache(_CACHE_BYTES)
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self.regions: Regions | None = None
        self.sampled = threading.Event()
        self._outlines: Outlines | None = None  # of the mask; traced when it is first saved
        self._problem = ""
        self._threads = [
            threading.Thread(target=work, name=work.__name__, daemon=True)
            for work in (self._prepare, self.slide.make_overview)
        ]

    def start(self) -> None:
        """Begin what takes long."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End what `start` began."""
        self.slide.close()
        self.shares.close()
        for thread in self._threads:
            thread.join()

    def tile(self, layer: str, level: int, column: int, row: int) -> tuple[bytes, bool] | None:
        """Return an encoded tile and whether it is final; None where there is none. Waits for the masks."""
        if layer == SLIDE:
            final = self.slide.is_final(level)
            key = layer, 0, level, column, row
            found = self._cached(key, final, lambda: self.slide.read(level, column, row))
            return None if found is None else (found, final)
        if layer not in self.layer_names:
            return None
        self.sampled.wait()
        if self._problem:
            return None
        with self._lock:
            strokes, version = self._journal.strokes, self._journal.version
        if layer != CORRECTIONS:
            strokes, version = (), 0
        key = layer, version, level, column, row
        try:
            found = self._cached(key, True, lambda: self.layers.read(layer, strokes, level, column, row))
        except GigaslideError as error:
            self._problem = str(error)
            return None
        return None if found is None else (found, layer != CORRECTIONS)

    def draw(self, value: Any) -> None:
        """Add a stroke, as JSON says it; on return it is on the disk.

        Raises:
            UsageError: it is no stroke.
        """
        stroke = parse_stroke(value, self.given.reader.level0_shape)
        if not shapely.is_empty(stroke.area):
            self._act(lambda journal: journal.add(stroke))

    def undo(self) -> None:
        """Take the last stroke, or a clear, back."""
        self._act(Journal.undo)

    def redo(self) -> None:
        """Draw again what was taken back."""
        self._act(Journal.redo)

    def clear(self) -> None:
        """Take all strokes back."""
        self._act(Journal.clear)

    def save(self) -> dict[str, Any]:
        """Write the corrected mask; return where, and how many areas it has.

        Raises:
            GigaslideError: it cannot be written.
        """
        with self._saving:
            with self._lock:
                strokes = self._journal.strokes
            reader, labels = self.given.reader, self.given.labels
            if self._outlines is None:
                path, source = self._start or (None, None)
                self._outlines = starting_outlines(path, source, reader, labels)
            outlines = correct(self._outlines, strokes, reader.level0_shape)
            try:
                write_corrected(self.given.save, outlines, labels, geojson_origin_yx_px(reader, labels))
            except OSError as error:
                raise GigaslideError(f"{self.given.save} cannot be written: {error.strerror or error}") from None
            self._act(lambda journal: journal.saved() if journal.strokes == strokes else None)
        return {
            "path": str(self.given.save),
            "tissue": len(outlines.tissue),
            "ignore": len(outlines.ignore),
            "command": f"gigaslide add {shlex.quote(str(self.given.reader.path))} "
            f"--annotations {shlex.quote(str(self.given.save.parent))}",
        }

    def state(self) -> dict[str, Any]:
        """Return what changes while the page is open."""
        with self._lock:
            journal = self._journal
            return {
                "version": journal.version,
                "strokes": len(journal.strokes),
                "can_undo": journal.can_undo,
                "can_redo": journal.can_redo,
                "is_saved": journal.is_saved,
                "was_saved": journal.was_saved,
                "restored": journal.restored_count,
                "kept_aside": journal.kept_aside.name if journal.kept_aside else None,
                "overview_share": self.slide.overview_share,
                "masks_share": 1.0 if self.sampled.is_set() else self.shares.share_done,
                "regions_ready": self.regions is not None,
                "problem": self._problem or self.slide.problem,
            }

    def _act(self, action: Callable[[Journal], None]) -> None:
        with self._lock:
            try:
                action(self._journal)
            except OSError as error:
                raise GigaslideError(
                    f"the stroke cannot be kept beside {self.given.save}: {error.strerror or error}; make room there, "
                    "or start again with --save elsewhere"
                ) from None

    def _cached(
        self, key: tuple[str, int, int, int, int], keep: bool, make: Callable[[], bytes | None]
    ) -> bytes | None:
        found = self._cache.get(key)
        if found is None:
            found = make()
            if found is not None and keep:
                self._cache.put(key, found)
        return found

    def _prepare(self) -> None:
        try:
            self.shares.sample()
            self.sampled.set()
            names = ["missed", "false"] if "disagreement" in self.layer_names else self.layer_names[:1]
            planes = [(name, self.shares.finest_sampled(name)) for name in names if name != CORRECTIONS]
            self.regions = find_regions(planes, self.given.reader.level0_shape)
        except GigaslideError as error:
            self._problem = str(error)
        finally:
            self.sampled.set()


def autosave_path(save: Path) -> Path:
    """Return where the strokes are kept until, and after, the mask is saved at `save`: beside it."""
    return save.with_name(f".{save.name}.strokes")


def etag(tile: bytes) -> str:
    """Return the strong validator of some bytes."""
    return f'"{hashlib.sha256(tile).hexdigest()[:32]}"'
