import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.slides.cohort_file import new_table, read_table

HEADER = "slide,annotation,split,mpp"


def table(tmp_path, content):
    path = tmp_path / "cohort.csv"
    path.write_bytes(content)
    return read_table(path)


ODD = (
    b'\xef\xbb\xbfmpp, slide,split,annotation,regions\r\n\r\n"0.25" ,a.svs,train,,\r\n"",'
    b'"b,\n""x"".svs",test,\t,\n  \nc.svs'
)


@pytest.mark.parametrize("content", [ODD, b"slide\n", b"slide", b"\n\nslide,x\r\na,b\rc,d"])
def test_what_is_read_is_written_again_byte_for_byte(tmp_path, content):
    assert table(tmp_path, content).text().encode() == content
    assert table(tmp_path, content).with_rows([]).text().encode() == content


def test_more_rows_in_the_order_of_the_columns_and_with_the_line_ends_of_the_table(tmp_path):
    found = table(tmp_path, b"mpp,slide,split,annotation\r\n1,a.svs,train,").with_column("patient")
    found = found.with_rows([{"slide": "x, y.svs", "split": "test", "patient": "P"}, {"slide": "z.svs"}])
    assert found.text() == (
        'mpp,slide,split,annotation,patient\r\n1,a.svs,train,,\r\n,"x, y.svs",test,,P\r\n,z.svs,,,\r\n'
    )
    assert found.with_column("patient") == found


def test_a_cell_changes_its_row_and_no_other(tmp_path):
    found = table(tmp_path, ODD).with_cell("a.svs", "annotation", "a.geojson")
    assert found.text().encode() == ODD.replace(b'"0.25" ,a.svs,train,,', b"0.25,a.svs,train,a.geojson,")


def test_writing_leaves_an_equal_file_alone(tmp_path):
    found = new_table(HEADER.split(",")).with_rows([{"slide": "a.svs", "split": "train"}])
    path = tmp_path / "cohort.csv"
    found.write(path)
    assert path.read_text() == f"{HEADER}\na.svs,,train,\n"
    before = path.stat()
    read_table(path).write(path)
    assert path.stat() == before


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), min_size=2, max_size=2)))
def test_any_rows_of_any_text_stay_and_new_ones_are_read_back(tmp_path_factory, cells):
    lines = io.StringIO()
    csv.writer(lines).writerows([["slide", "note"], *cells])
    found = table(tmp_path_factory.mktemp("table"), lines.getvalue().encode())
    more = found.with_column("patient").with_rows([{"slide": "new", "note": 'a "b", c', "patient": "P"}])
    assert found.text() == lines.getvalue()
    read = list(csv.reader(io.StringIO(more.text(), newline="")))
    assert read[0] == ["slide", "note", "patient"]
    assert read[-1] == ["new", 'a "b", c', "P"]
    filled = [row for row in cells if any(cell.strip() for cell in row)]
    assert [row[:2] for row in read[1:-1] if any(cell.strip() for cell in row)] == filled
