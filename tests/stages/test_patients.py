import pytest

from gigaslide.errors import UsageError
from gigaslide.stages.patients import patient_in, read_patients


def read(tmp_path, *lines):
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(lines))
    return read_patients(path)


def test_slides_by_name_or_by_file(tmp_path):
    found = read(tmp_path, "stain,slide,patient", "HE,a.svs, P1 ", "HE,folder/B.tif,P2", "HE,c,P3")
    for name, patient in [("a", "P1"), ("b", "P2"), ("C", "P3"), ("d", None)]:
        assert patient_in(found, tmp_path / f"{name}.svs", name) == patient


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["slide,case", "a,1"], "should have the columns slide,patient; patient is missing"),
        ([""], "slide and patient is missing"),
        (["slide,patient", "a,"], "row 2: expected a slide and a patient; found 'a' and ''"),
        (["slide,patient", "a,1", "a,2"], "row 3: a is of 2 here and of 1 above"),
    ],
)
def test_mistakes(tmp_path, lines, message):
    with pytest.raises(UsageError, match=message):
        read(tmp_path, *lines)


def test_no_table(tmp_path):
    with pytest.raises(UsageError, match="cannot be read as CSV in UTF-8"):
        read_patients(tmp_path / "absent.csv")
