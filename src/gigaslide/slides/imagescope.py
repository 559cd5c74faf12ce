"""Annotations of Aperio ImageScope, and of HALO, whose files are alike.

    <Annotations MicronsPerPixel="0.252">
      <Annotation Id="1" Name="Tumor" LineColor="65280">
        <Attributes><Attribute Id="0" Name="Description" Value=""/></Attributes>
        <Regions>
          <Region Id="1" Type="0" Text="" NegativeROA="0">
            <Vertices><Vertex X="1.5" Y="2" Z="0"/>...</Vertices></Region>...

There is no published schema; this is what files of ImageScope 12, of MoNuSeg and MoNuSAC, and the readers of ASAP
(`annotation/ImageScopeRepository.cpp`) and haloxml agree on. Corners are pixels of level 0. An <Annotation> is a
layer. The classes of a region are its Text, its layer's Name, the layer's attributes (the Value; or the Name when
that is not "Description", as in MoNuSAC) and the layer's colour as "#rrggbb", since many layers have no name.

Type 0 is a polygon; 1 a rectangle, of four corners or of two; 2 an ellipse, given by the rectangle around it; 3 is
an arrow and 4 a ruler. HALO writes Polygon, Rectangle, Ellipse, Ruler, Pin, and <V> for <Vertex>. A region with
NegativeROA is cut out of the others of its layer, but not out of one that lies wholly inside it: an island.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import shapely

from gigaslide.slides.drawing import Drawing, MalformedError, box, ellipse, polygonal, polygons, shown
from gigaslide.slides.safe_xml import number, parse, refuse_other_xml

ROOT_TAG = "Annotations"
_TYPES = {"0": "polygon", "1": "rectangle", "2": "ellipse", "3": "arrow", "4": "ruler"}
_WITHOUT_AREA = ("arrow", "ruler", "pin", "line")
_KNOWN = {
    *("Regions", "RegionAttributeHeaders", "AttributeHeader", "Vertices", "Plots", "Comments", "Comment"),
    *(ROOT_TAG, "Attributes"),
}


def _colour(line_colour: str) -> str:
    """Return "#rrggbb" of a Windows colour: blue, green, red from the highest byte down; "" of anything else."""
    if not line_colour.isascii() or not line_colour.isdigit() or len(line_colour) > 10:
        return ""
    value = int(line_colour)
    return f"#{value & 255:02x}{value >> 8 & 255:02x}{value >> 16 & 255:02x}"


def _attribute_name(attributes: Mapping[str, str]) -> str:
    name = attributes.get("Name", "")
    return attributes.get("Value", "") or ("" if name.casefold() == "description" else name)


def _area(kind: str, corners: Sequence[tuple[float, float]]) -> tuple[shapely.Polygon, ...] | None:
    """Return the polygons of a region; None when it has no area by its nature."""
    if kind in _WITHOUT_AREA or len(corners) < 2:
        return None
    if kind == "ellipse" and len(corners) <= 5:  # more corners than a rectangle has are the outline itself
        return ellipse(corners)
    return box(corners) if kind == "rectangle" and len(corners) == 2 else polygons(corners)


def _without(positive: shapely.Polygon, negatives: Sequence[shapely.Polygon]) -> tuple[shapely.Polygon, ...]:
    cutting = [hole for hole in negatives if not (hole.area > positive.area and shapely.covers(hole, positive))]
    if not cutting:
        return (positive,)
    try:
        return tuple(polygonal(shapely.difference(positive, shapely.union_all(cutting))))
    except shapely.errors.ShapelyError as error:
        raise MalformedError(f"expected regions that can be cut out of each other; found {shown(str(error))}") from None


def _cut(drawings: Sequence[Drawing], negatives: Sequence[shapely.Polygon]) -> list[Drawing]:
    """Cut the negative regions of a layer out of the others."""
    tree = shapely.STRtree(negatives)
    return [
        replace(
            drawing,
            polygons=tuple(
                part
                for polygon in drawing.polygons
                for part in _without(polygon, [negatives[number] for number in sorted(tree.query(polygon))])
            ),
        )
        for drawing in drawings
    ]


class _ImageScope:
    """Collects the regions, layer by layer."""

    def __init__(self) -> None:
        self.drawings: list[Drawing] = []
        self.unknown: set[str] = set()
        self._layer: Mapping[str, str] = {}
        self._attribute_names: list[str] = []
        self._positives: list[tuple[str, Drawing]] = []
        self._negatives: list[shapely.Polygon] = []
        self._region: Mapping[str, str] | None = None
        self._corners: list[tuple[float, float]] = []
        self._count = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin a layer or a region, take a corner or an attribute of a layer."""
        if tag == "Annotation":
            self._layer, self._attribute_names = attributes, []
        elif tag == "Region":
            self._region, self._corners = attributes, []
            self._count += 1
        elif tag in ("Vertex", "V"):
            self._corners.append((number(attributes, "X"), number(attributes, "Y")))
        elif tag == "Attribute":
            if self._region is None:
                self._attribute_names.append(_attribute_name(attributes))
        elif tag not in _KNOWN:
            self.unknown.add(tag)

    def end(self, tag: str) -> None:
        """End a region or a layer."""
        if tag == "Region" and self._region is not None:
            try:
                self._end_region(self._region)
            except MalformedError as error:
                raise MalformedError(f"region {self._count} is malformed: {error}") from None
            self._region = None
        elif tag == "Annotation":
            self._end_layer()

    def _end_region(self, region: Mapping[str, str]) -> None:
        kind = region.get("Type", "0")
        kind = _TYPES.get(kind, kind).casefold()
        area = _area(kind, self._corners)
        text = region.get("Text", "")
        if area is None:
            self._positives.append((text, Drawing((), left_out=shown(kind) if len(self._corners) > 1 else "point")))
        elif region.get("NegativeROA", "0").strip().casefold() in ("1", "true"):
            self._negatives += area
        else:
            self._positives.append((text, Drawing((), area)))

    def _end_layer(self) -> None:
        # Attributes may come after the regions, so classes are known only here.
        names = [self._layer.get("Name", ""), *self._attribute_names, _colour(self._layer.get("LineColor", ""))]
        drawings = [
            replace(drawing, classes=tuple(dict.fromkeys(name for name in (text, *names) if name.strip())))
            for text, drawing in self._positives
        ]
        self.drawings += _cut(drawings, self._negatives) if self._negatives else drawings
        self._positives, self._negatives = [], []


def read_imagescope(data: bytes) -> list[Drawing]:
    """Return what is drawn in an ImageScope file, in the order of the file.

    Raises:
        MalformedError: this is not such XML; the text names the line, and the region, counted from 1.
    """
    image_scope = _ImageScope()
    parse(data, image_scope)
    refuse_other_xml("<Region> elements with <Vertex> elements", image_scope.unknown, image_scope.drawings)
    return image_scope.drawings
