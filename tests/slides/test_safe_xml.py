import time

import pytest

from gigaslide.slides.drawing import MalformedError
from gigaslide.slides.safe_xml import number, parse, root_tag


class Recorder:
    def __init__(self):
        self.heard = []

    def start(self, tag, attributes):
        self.heard.append((tag, dict(attributes)))

    def end(self, tag):
        self.heard.append(tag)


def heard(data):
    recorder = Recorder()
    parse(data, recorder)
    return recorder.heard


def test_elements_come_in_order_and_without_prefix():
    assert heard(b'<?xml version="1.0"?><n:a xmlns:n="u" n:x="1"><b y="&lt;"/></n:a>') == [
        ("a", {"xmlns:n": "u", "n:x": "1"}),
        ("b", {"y": "<"}),
        "b",
        "a",
    ]


BILLION_LAUGHS = (
    b'<!DOCTYPE a [<!ENTITY l0 "ha">'
    + b"".join(b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 10))
    + b"]><a>&l9;</a>"
)


@pytest.mark.parametrize(
    "data",
    [
        BILLION_LAUGHS,
        b'<!DOCTYPE a [<!ENTITY x "' + b"y" * 10**6 + b'">]><a>' + b"&x;" * 1000 + b"</a>",
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>',
        b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><a/>',
        b'<?xml version="1.0"?>\n<!DOCTYPE a><a/>',
    ],
    ids=["billion laughs", "quadratic", "another file", "another machine", "plain"],
)
def test_a_document_type_is_refused_before_it_is_read(data):
    start_s = time.monotonic()
    with pytest.raises(MalformedError, match=r"line .: expected XML without a document type; found <!DOCTYPE"):
        heard(data)
    with pytest.raises(MalformedError, match="DOCTYPE"):
        root_tag(data)
    assert time.monotonic() - start_s < 60  # expanded, these are 10^9 characters


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no element found"),
        (b"<a>", "no element found"),
        (b"<a></b>", "mismatched tag: line 1, column 5"),
        (b"{}", "not well-formed"),
        (b"\x00\xff", "syntax error"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "encoding"),
        (b'<?xml version="1.0" encoding="gb18030"?><a/>', "multi-byte"),
    ],
)
def test_what_is_no_xml_is_refused(data, message):
    with pytest.raises(MalformedError, match=f"this is no XML: .*{message}"):
        heard(data)


def test_a_deep_file_is_just_read():
    assert len(heard(b"<a>" * 100_000 + b"</a>" * 100_000)) == 200_000


def test_the_root_is_found_in_a_file_that_breaks_off():
    assert root_tag(b"<ASAP_Annotations><a") == "ASAP_Annotations"


def test_numbers():
    assert number({"X": "1.5"}, "X") == number({"X": "1,5"}, "X") == number({"X": " 1.5 "}, "X") == 1.5
    for text in ("", "1,000.5", "1,2,3", "x"):
        with pytest.raises(MalformedError, match="expected a number in X"):
            number({"X": text}, "X")
    with pytest.raises(MalformedError, match="expected a number in Y; found ''"):
        number({"X": "1"}, "Y")
