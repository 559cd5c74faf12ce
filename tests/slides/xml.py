"""Annotations as ASAP and ImageScope write them, short."""

SQUARE = [(1, 1), (5, 1), (5, 5), (1, 5)]
HOLE = [(2, 2), (4, 2), (4, 4), (2, 4)]


def asap_annotation(corners, group="Tissue", kind="Polygon", name="Annotation 0"):
    coordinates = "".join(f'<Coordinate Order="{n}" X="{x}" Y="{y}" />' for n, (x, y) in enumerate(corners))
    return (
        f'<Annotation Name="{name}" Type="{kind}" PartOfGroup="{group}" Color="#F4FA58">'
        f"<Coordinates>{coordinates}</Coordinates></Annotation>"
    )


def asap(*annotations, groups=()):
    named = "".join(f'<Group Name="{name}" PartOfGroup="{above}"><Attributes /></Group>' for name, above in groups)
    return (
        '<?xml version="1.0"?>\n<ASAP_Annotations>\n<Annotations>\n' + "\n".join(annotations) + "\n</Annotations>\n"
        f"<AnnotationGroups>{named}</AnnotationGroups>\n</ASAP_Annotations>"
    )


def region(corners, kind=0, text="", negative=0, vertex="Vertex"):
    vertices = "".join(f'<{vertex} X="{x}" Y="{y}" Z="0"/>' for x, y in corners)
    return (
        f'<Region Id="1" Type="{kind}" Zoom="0.5" Text="{text}" NegativeROA="{negative}">'
        f"<Attributes/><Vertices>{vertices}</Vertices></Region>"
    )


def layer(*regions, name="Tissue", colour=65280, attributes=(("Description", ""),)):
    described = "".join(f'<Attribute Name="{key}" Id="0" Value="{value}"/>' for key, value in attributes)
    return (
        f'<Annotation Id="1" Name="{name}" Type="4" LineColor="{colour}"><Attributes>{described}</Attributes>'
        '<Regions><RegionAttributeHeaders><AttributeHeader Id="9999" Name="Region"/></RegionAttributeHeaders>\n'
        + "\n".join(regions)
        + "</Regions><Plots/></Annotation>"
    )


def imagescope(*layers):
    return '<Annotations MicronsPerPixel="0.252">\n' + "\n".join(layers) + "\n</Annotations>"
