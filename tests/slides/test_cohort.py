import pytest

from gigaslide.errors import UsageError
from gigaslide.slides.cohort import CohortRow, parse_cohort, read_cohort

HEADER = "slide,annotation,split,mpp"


@pytest.fixture
def folder(tmp_path):
    for name in ("a.svs", "b.svs", "c.d.svs", "a.geojson", "mask.png", "regions.tif", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more/A.tif").touch()
    return tmp_path


def read(folder, *lines, encoding="utf-8", **options):
    path = folder / "cohort.csv"
    path.write_text("\n".join(lines), encoding=encoding)
    return read_cohort(path, **options)


def mistakes(folder, *lines):
    with pytest.raises(UsageError) as caught:
        read(folder, *lines)
    return str(caught.value).split("\n  ")


def test_rows_in_the_order_of_the_table(folder):
    rows = read(
        folder,
        "mpp,slide,split,annotation,regions",
        "0.25,c.d.svs,train,mask.png,regions.tif",
        "",
        " , a.svs , validation , a.geojson ,",
        ",,,,",
    )
    assert rows == [
        CohortRow("c.d", folder / "c.d.svs", folder / "mask.png", "train", 0.25, folder / "regions.tif"),
        CohortRow("a", folder / "a.svs", folder / "a.geojson", "validation", None, None),
    ]


def test_a_byte_order_mark_and_quotes_as_spreadsheets_write_them(folder):
    rows = read(folder, f'{HEADER}\r\n"a.svs","",train,\r\nb.svs,,validation,\r\n', encoding="utf-8-sig")
    assert [row.name for row in rows] == ["a", "b"]


def test_all_mistakes_at_once_with_row_and_column(folder):
    found = mistakes(
        folder,
        HEADER,
        "gone.svs,gone.geojson,training,half",
        "a.svs,notes.txt,train,-1",
        "",
        "a.svs,,test,nan",
        "more/A.tif,,test,",
        ",,test,",
        "b.svs,train",
    )
    assert found[0] == f"the cohort table {folder}/cohort.csv has 11 mistake(s):"
    assert found[1:] == [
        f"row 2, column slide: there is no file {folder}/gone.svs",
        f"row 2, column annotation: there is no file {folder}/gone.geojson",
        "row 2, column split: expected one of train, validation, test; found 'training'",
        "row 2, column mpp: expected um per px, 0.01 to 100.0, or nothing; found 'half'",
        "row 3, column annotation: notes.txt should end in one of .geojson, .json, .xml, .annotations, .tif, .tiff, "
        ".png",
        "row 3, column mpp: expected um per px, 0.01 to 100.0, or nothing; found '-1'",
        "row 5, column mpp: expected um per px, 0.01 to 100.0, or nothing; found 'nan'",
        "row 5, column slide: the name a is that of row 3; names are unique",
        "row 6, column slide: the name A is that of row 3; names are unique",
        "row 7, column slide: this is empty; name a slide file",
        "row 8: expected 4 cells; found 2",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["slide;annotation;split;mpp"], "row 1: columns are separated by commas; found 'slide;annotation;split;mpp'"),
        (["slide,split,mpp"], f"row 1: the column annotation is missing; expected {HEADER}"),
        (
            [f"{HEADER},stain"],
            "row 1, column 'stain': this column is unknown; known are slide, ",
        ),
        ([f"{HEADER},mpp"], "row 1, column mpp: this column occurs 2 times"),
        ([HEADER], "there is a header but no slide"),
        ([HEADER, "a.svs,,train,"], "column split: no row is validation"),
        ([HEADER, "a.svs,,test,"], "column split: no row is train"),
    ],
)
def test_mistakes_of_the_whole_table(folder, lines, message):
    assert any(line.startswith(message) for line in mistakes(folder, *lines)[1:])


def test_splits_that_are_asked_for(folder):
    assert read(folder, HEADER, "a.svs,,test,", required_splits=("test",))[0].split == "test"


def test_no_table_and_an_empty_one(folder):
    with pytest.raises(UsageError, match="there is no cohort table"):
        read_cohort(folder / "absent.csv")
    with pytest.raises(UsageError, match=f"is empty; expected the header {HEADER}"):
        read(folder, "", " ")
    with pytest.raises(UsageError, match="cannot be read as CSV in UTF-8"):
        read(folder, "slide,\xe9", encoding="latin-1")


def test_patients(folder):
    rows = read(folder, f"{HEADER},patient", "a.svs,,train,,P 1", "b.svs,,validation,,", "c.d.svs,,train,,p 1")
    assert [row.patient for row in rows] == ["P 1", None, "p 1"]


def test_a_patient_in_two_splits_is_a_mistake(folder):
    (folder / "d.svs").touch()
    found = mistakes(
        folder, f"patient,{HEADER}", "P1,a.svs,,train,", "P2,b.svs,,validation,", "p1,c.d.svs,,test,", "P1,d.svs,,tset,"
    )
    assert found[1:] == [
        "row 5, column split: expected one of train, validation, test; found 'tset'",
        "row 4, column patient: p1 is in test here and in train in row 2; a patient is in one split",
    ]


def test_the_name_of_a_dicom_slide_is_its_folder(folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "1.dcm").touch()
    (folder / "0.dcm").touch()
    rows = read(folder, HEADER, "one/1.dcm,,train,", "two/1.dcm,,validation,", "0.dcm,,test,")
    assert [row.name for row in rows] == ["one", "two", "0"]


def test_a_table_without_slides_where_none_is_needed(folder):
    assert read(folder, HEADER, required_splits=()) == []


def test_rows_without_mistakes_beside_the_mistakes(folder):
    path = folder / "cohort.csv"
    path.write_text(f"{HEADER}\na.svs,,train,\ngone.svs,,train,\nb.svs,,validation,0")
    rows, found = parse_cohort(path)
    assert [row.name for row in rows] == ["a"]
    assert [mistake[:19] for mistake in found] == ["row 3, column slide", "row 4, column mpp: "]
