"""Annotations of ASAP, the viewer of the Computational Pathology Group (CAMELYON and its successors).

    <ASAP_Annotations>
      <Annotations>
        <Annotation Name="Annotation 0" Type="Polygon" PartOfGroup="Tumor" Color="#F4FA58">
          <Coordinates><Coordinate Order="0" X="1.5" Y="2"/>...</Coordinates></Annotation>...
      <AnnotationGroups>
        <Group Name="Tumor" PartOfGroup="None" Color="#00ff00"><Attributes/></Group>...

as ASAP's `annotation/XmlRepository.cpp` reads and writes it; corners are pixels of level 0. The classes of an
annotation are its group and the groups that this one is part of; without a group, its name.

Polygon, Rectangle and Spline have an area. A spline is the polygon of its points, as in ASAP's own masks
(`AnnotationToMask.cpp`), not the curve that the viewer draws. Dot, PointSet, Measurement and None have none. ASAP
knows no holes: an area to leave out is drawn as an own annotation, of a class of `labels.glass_classes`.
"""

from collections.abc import Mapping, Sequence

import shapely

from gigaslide.slides.drawing import Drawing, MalformedError, box, polygons, shown
from gigaslide.slides.safe_xml import number, parse, refuse_other_xml

ROOT_TAG = "ASAP_Annotations"
_WITH_AREA = ("Polygon", "Rectangle", "Spline")
_WITHOUT_AREA = ("Dot", "PointSet", "Measurement", "None")
_KNOWN = {"Annotations", "AnnotationGroups", "Attributes", "Attribute", "Coordinates", ROOT_TAG}


class _Asap:
    """Collects annotations and groups; groups come after the annotations that name them."""

    def __init__(self) -> None:
        self.drawings: list[Drawing] = []
        self.parents: dict[str, str] = {}
        self.unknown: set[str] = set()
        self._annotation: Mapping[str, str] | None = None
        self._count = 0
        self._corners: list[tuple[float, float, float]] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an annotation, take a corner or a group."""
        if tag == "Annotation":
            self._annotation, self._corners = attributes, []
            self._count += 1
        elif tag == "Coordinate":
            order = number(attributes, "Order") if "Order" in attributes else len(self._corners)
            self._corners.append((order, number(attributes, "X"), number(attributes, "Y")))
        elif tag == "Group":
            self.parents[attributes.get("Name", "")] = attributes.get("PartOfGroup", "")
        elif tag not in _KNOWN:
            self.unknown.add(tag)

    def end(self, tag: str) -> None:
        """End an annotation."""
        if tag == "Annotation" and self._annotation is not None:
            try:
                self.drawings.append(self._drawing(self._annotation))
            except MalformedError as error:
                raise MalformedError(f"annotation {self._count} is malformed: {error}") from None
            self._annotation = None

    def _drawing(self, annotation: Mapping[str, str]) -> Drawing:
        kind = annotation.get("Type", "Polygon")
        group, name = annotation.get("PartOfGroup", "None"), annotation.get("Name", "")
        classes = (name,) if group in ("", "None") else (group,)
        if kind in _WITHOUT_AREA:
            return Drawing(classes, left_out=kind)
        if kind not in _WITH_AREA:
            expected = ", ".join(_WITH_AREA + _WITHOUT_AREA)
            raise MalformedError(f"the Type {shown(repr(kind))} is unknown; expected {expected}")
        # The corners are in the order of `Order`, whatever their order in the file.
        corners = [corner[1:] for corner in sorted(self._corners, key=lambda corner: corner[0])]
        return Drawing(classes, _area(kind, corners))


def _area(kind: str, corners: Sequence[tuple[float, float]]) -> tuple[shapely.Polygon, ...]:
    return box(corners) if kind == "Rectangle" and len(corners) == 2 else polygons(corners)


def _with_ancestors(classes: tuple[str, ...], parents: Mapping[str, str]) -> tuple[str, ...]:
    """Return a group's name and those of the groups it is in, the innermost first."""
    found = list(dict.fromkeys(name for name in classes if name))
    while found and (above := parents.get(found[-1], "None")) not in ("", "None", *found):
        found.append(above)
    return tuple(found)


def read_asap(data: bytes) -> list[Drawing]:
    """Return what is drawn in an ASAP file, in the order of the file.

    Raises:
        MalformedError: this is not such XML; the text names the line, and the annotation, counted from 1.
    """
    asap = _Asap()
    parse(data, asap)
    refuse_other_xml("<Annotation> elements", asap.unknown, asap.drawings)
    return [
        Drawing(_with_ancestors(drawing.classes, asap.parents), drawing.polygons, drawing.left_out)
        for drawing in asap.drawings
    ]
