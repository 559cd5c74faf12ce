"""Annotation files: which classes and polygons are in them, whatever program wrote them.

Formats: GeoJSON (`geojson.py`), and XML of ASAP (`asap.py`) and of ImageScope and HALO (`imagescope.py`), told apart
by the outermost element. What a class means is said in `labels:` of `params.yaml`; names are compared by `class_key`.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import shapely

from gigaslide.classes import class_key
from gigaslide.config import Labels
from gigaslide.errors import GigaslideWarning, SlideError
from gigaslide.slides.asap import ROOT_TAG as ASAP_ROOT_TAG
from gigaslide.slides.asap import read_asap
from gigaslide.slides.drawing import Drawing, MalformedError, shown
from gigaslide.slides.geojson import read_geojson
from gigaslide.slides.imagescope import ROOT_TAG as IMAGESCOPE_ROOT_TAG
from gigaslide.slides.imagescope import read_imagescope
from gigaslide.slides.safe_xml import root_tag

GEOJSON_SUFFIXES = (".geojson", ".json")
XML_SUFFIXES = (".xml", ".annotations")  # HALO's files end in .annotations

_NO_CLASS = "(no class)"
_ROLES = ("ignore", "glass", "region", "tissue")
# More names than this in a message are a count.
_MOST_NAMES = 10
# A text is held twice while it is read, as bytes and as characters.
_LARGEST_BYTES = 1 << 28


@dataclass(frozen=True)
class Annotation:
    """Polygons by what they mean, valid, corners (x, y) in pixels of level 0.

    `regions` are the areas that were annotated; without any, that is the whole slide. `kind` is the format: one
    of geojson, asap, imagescope.
    """

    kind: str
    tissue: tuple[shapely.Polygon, ...] = ()
    glass: tuple[shapely.Polygon, ...] = ()
    ignore: tuple[shapely.Polygon, ...] = ()
    regions: tuple[shapely.Polygon, ...] = ()

    def shifted(self, yx_px: tuple[int, int]) -> "Annotation":
        """Return it moved down and right by whole pixels of level 0."""
        if yx_px == (0, 0):
            return self
        tissue, glass, ignore, regions = (
            tuple(shapely.transform(np.array(polygons, object), lambda corners: corners + yx_px[::-1]))
            for polygons in (self.tissue, self.glass, self.ignore, self.regions)
        )
        return replace(self, tissue=tissue, glass=glass, ignore=ignore, regions=regions)


class _Roles:
    """What the classes of the settings mean."""

    def __init__(self, labels: Labels) -> None:
        named: dict[str, Sequence[str | int]] = {
            "ignore": labels.ignore_classes,
            "glass": labels.glass_classes,
            "region": labels.region_classes,
            "tissue": labels.tissue_classes,
        }
        self._of = {class_key(name): role for role in reversed(_ROLES) for name in named[role]}

    def of(self, classes: Iterable[str]) -> str | None:
        """Return the role of the first name that has one."""
        return next((self._of[key] for key in map(class_key, classes) if key in self._of), None)


def _listed(names: Sequence[object]) -> str:
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return ", ".join([*map(str, names[:_MOST_NAMES]), *more]) or "none"


def _read_bytes(path: Path) -> bytes:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > _LARGEST_BYTES:
            raise SlideError(
                f"the annotation {path} has {size_bytes} bytes, more than the {_LARGEST_BYTES} that outlines of tissue "
                "need: export annotations only, without detected cells"
            )
        return path.read_bytes()
    except OSError as error:
        raise SlideError(f"the annotation {path} cannot be read: {error}") from None


def _drawings(path: Path, data: bytes) -> tuple[str, Iterator[Drawing]]:
    """Return the format of a file, and what is drawn in it."""
    if path.suffix.lower() in GEOJSON_SUFFIXES:
        return "geojson", read_geojson(data)
    tag = root_tag(data)
    if tag == ASAP_ROOT_TAG:
        return "asap", iter(read_asap(data))
    if tag == IMAGESCOPE_ROOT_TAG:
        return "imagescope", iter(read_imagescope(data))
    raise MalformedError(
        f"expected the outermost element <{ASAP_ROOT_TAG}> of ASAP or <{IMAGESCOPE_ROOT_TAG}> of ImageScope; "
        f"found <{shown(tag)}>: open it in QuPath and export GeoJSON"
    )


def _refuse_what_says_nothing(
    path: Path, labels: Labels, found: Sequence[str], roles: set[str | None], with_regions: bool
) -> None:
    """Refuse drawings of which one can't tell where the tissue is."""
    if not roles & {"tissue", "region"}:
        raise SlideError(
            f"the annotation {path} has no class {_listed(labels.tissue_classes)} (labels.tissue_classes); "
            f"its classes are: {_listed(found)}"
        )
    if "region" in roles and not with_regions:
        # The whole slide would count as annotated.
        raise SlideError(
            f"the annotation {path} should have an area in its regions ({_listed(labels.region_classes)}, "
            "labels.region_classes); none encloses any: draw them again"
        )


def _warn_of_what_was_left_out(path: Path, unknown: Counter[str], without_area: Counter[str]) -> None:
    left_out = [f"{unknown[name]} of class {name}" for name in sorted(unknown)]
    left_out += [f"{count} {kind}(s), which have no area" for kind, count in sorted(without_area.items())]
    if left_out:
        message = f"left out of the annotation {path.name}: {_listed(left_out)}"
        warnings.warn(message, GigaslideWarning, stacklevel=3)


def read_annotation(path: Path, labels: Labels) -> Annotation:
    """Read the polygons of the classes that `labels` names from a GeoJSON or XML file.

    A file in which nothing is drawn says that the slide has no tissue; so does one with regions but no tissue.

    Raises:
        SlideError: the file is missing, too large or in none of the formats, or something in it is malformed; or
            there are drawings, but none of a tissue or region class, or regions without an area.

    Warns:
        GigaslideWarning: objects were left out: of other classes, or points and lines.
    """
    data, roles = _read_bytes(path), _Roles(labels)
    polygons: dict[str, list[shapely.Polygon]] = {role: [] for role in _ROLES}
    found: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    without_area: Counter[str] = Counter()
    roles_found: set[str | None] = set()
    try:
        kind, drawings = _drawings(path, data)
        del data  # the reader holds it as long as it needs it
        for drawing in drawings:
            if drawing.left_out is not None:
                without_area[shown(drawing.left_out)] += 1
                continue
            name, role = shown(" / ".join(drawing.classes)) or _NO_CLASS, roles.of(drawing.classes)
            found[name] += 1
            roles_found.add(role)
            if role is None:
                unknown[name] += 1
            else:
                polygons[role] += drawing.polygons
    except MalformedError as error:
        message = f"the annotation {path} cannot be used: {error}; correct that, or export the annotation again"
        raise SlideError(message) from None
    if found or without_area:
        _refuse_what_says_nothing(path, labels, sorted(found), roles_found, bool(polygons["region"]))
    _warn_of_what_was_left_out(path, unknown, without_area)
    named = {role: tuple(found) for role, found in polygons.items()}
    return Annotation(kind, named["tissue"], named["glass"], named["ignore"], named["region"])
