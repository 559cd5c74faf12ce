"""XML as a stream of elements, with no way to make much out of little.

Python's expat reads the file; a document type declaration, which every entity attack needs (an entity of
entities, "billion laughs"; an entity that is another file), is refused where it begins. Elements are handed on
one by one and not kept, so memory is that of what the receiver keeps.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NoReturn, Protocol
from xml.parsers import expat

from gigaslide.slides.drawing import MalformedError, shown


class Receiver(Protocol):
    """Who is told of every element; names come without a namespace's prefix."""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Hear that an element begins."""

    def end(self, tag: str) -> None:
        """Hear that it ends."""


def _refuse_doctype(*_: object) -> NoReturn:
    raise MalformedError("expected XML without a document type; found <!DOCTYPE, in which an attack can hide")


def parse(data: bytes, receiver: Receiver) -> None:
    """Tell `receiver` of every element of an XML text, in order.

    Raises:
        MalformedError: the text is not XML, in an unknown encoding, or has a document type declaration; or what
            the receiver raised, with the line.
    """
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = lambda tag, attributes: receiver.start(tag.rpartition(":")[2], attributes)
    parser.EndElementHandler = lambda tag: receiver.end(tag.rpartition(":")[2])
    try:
        parser.Parse(data, True)
    except MalformedError as error:
        raise MalformedError(f"line {parser.CurrentLineNumber}: {error}") from None
    except (expat.ExpatError, ValueError, LookupError) as error:
        # An unknown encoding is a LookupError of Python's, one of several bytes a ValueError.
        raise MalformedError(f"this is no XML: {shown(str(error))}") from None


class _RootFoundError(Exception):
    pass


class _Root:
    """Remembers the first element and stops there."""

    tag = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.tag = tag
        raise _RootFoundError

    def end(self, tag: str) -> None: ...


def root_tag(data: bytes) -> str:
    """Return the name of the outermost element.

    Raises:
        MalformedError: see `parse`.
    """
    root = _Root()
    with suppress(_RootFoundError):
        parse(data, root)
    return root.tag


def number(attributes: Mapping[str, str], name: str) -> float:
    """Return an attribute as a number; a comma may stand for the point, as old ASAP wrote in some countries.

    Raises:
        MalformedError: the attribute is missing or no number.
    """
    text = attributes.get(name, "")
    try:
        return float(text if "." in text else text.replace(",", "."))
    except ValueError:
        raise MalformedError(f"expected a number in {name}; found {shown(repr(text))}") from None


def refuse_other_xml(expected: str, unknown: Collection[str], found: Collection[object]) -> None:
    """Refuse a file in which nothing was found, but elements that are `unknown`.

    Raises:
        MalformedError: it is XML of another kind.
    """
    if unknown and not found:
        names = ", ".join(map(shown, sorted(unknown)[:5]))
        raise MalformedError(f"expected {expected}; found none, but <{names}>")
