import pytest

from gigaslide.errors import SlideError, UsageError
from gigaslide.slides.slide_files import find_slides, slide_files, slide_name, slide_sha256


def touch(folder, *names, text=""):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text or name)


def found(folder, *paths, **options):
    return [path.relative_to(folder).as_posix() for path in find_slides([folder / path for path in paths], **options)]


def test_slides_in_a_folder_and_below_it_once_each(tmp_path):
    touch(tmp_path, "b.svs", "a.NDPI", "more/c.tif", "notes.txt", ".hidden.svs", "thumb.png")
    touch(tmp_path, "m.mrxs", "m/Slidedat.ini", "m/tile.tif", "dicom/1.dcm", "dicom/DICOMDIR")
    touch(tmp_path, "dicom/2.dcm", text="the largest of the series")
    assert found(tmp_path, "", "b.svs", "dicom/1.dcm") == ["a.NDPI", "b.svs", "m.mrxs", "dicom/2.dcm", "more/c.tif"]
    assert found(tmp_path, "", leave_out=[tmp_path / "more", tmp_path / "a.NDPI"]) == ["b.svs", "m.mrxs", "dicom/2.dcm"]
    assert found(tmp_path, "notes.txt") == ["notes.txt"]


def test_nothing_there_is_said(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty holds no slide; expected files that end in one of \.svs"):
        find_slides([tmp_path / "empty"])
    with pytest.raises(UsageError, match=r"there is no file or folder .*absent"):
        find_slides([tmp_path / "absent"])


def test_a_link_to_a_slide_is_that_slide(tmp_path):
    touch(tmp_path, "a.svs")
    (tmp_path / "b.svs").symlink_to(tmp_path / "a.svs")
    assert found(tmp_path, "") == ["a.svs"]


def test_the_files_of_one_slide(tmp_path):
    touch(tmp_path, "m.mrxs", "m/Slidedat.ini", "m/Data0000.dat", "dicom/1.dcm", "dicom/2.dcm", "v(0,0).jpg")
    touch(tmp_path, "other.jpg")
    (tmp_path / "v.vms").write_text("[Specimen]\nImageFile=v(0,0).jpg\nMapFile=gone.jpg\nX=../m.mrxs\n")

    def parts(name):
        return [path.relative_to(tmp_path).as_posix() for path in slide_files(tmp_path / name).parts]

    assert parts("m.mrxs") == ["m.mrxs", "m/Data0000.dat", "m/Slidedat.ini"]
    assert parts("dicom/2.dcm") == ["dicom/1.dcm", "dicom/2.dcm"]
    assert parts("v.vms") == ["v.vms", "v(0,0).jpg"]
    assert parts("other.jpg") == ["other.jpg"]
    assert slide_files(tmp_path / "m.mrxs").size_bytes == len("m.mrxs" + "m/Slidedat.ini" + "m/Data0000.dat")
    assert [slide_name(tmp_path / name) for name in ("dicom/2.dcm", "a.b.svs")] == ["dicom", "a.b"]


@pytest.mark.parametrize(
    ("main", "part"), [("m.mrxs", "m/Data0000.dat"), ("d/1.dcm", "d/2.dcm"), ("v.vms", "v.jpg"), ("a.svs", "a.svs")]
)
def test_the_hash_is_that_of_all_files_and_not_of_the_place(tmp_path, main, part):
    for folder in ("one", "two"):
        touch(tmp_path / folder, "m.mrxs", "m/Data0000.dat", "d/1.dcm", "d/2.dcm", "v.jpg", "a.svs")
        (tmp_path / folder / "v.vms").write_text("ImageFile=v.jpg")
    assert slide_sha256(tmp_path / "one" / main) == slide_sha256(tmp_path / "two" / main)
    (tmp_path / "two" / part).write_text("changed")
    assert slide_sha256(tmp_path / "one" / main) != slide_sha256(tmp_path / "two" / main)


def test_two_dicom_series_in_a_folder_are_refused(tmp_path):
    for number, series in enumerate(["1.2.3", "1.2.3", "1.2.4"]):
        value = series.encode() + b"\0"
        head = b"\0" * 128 + b"DICM" + b"\x20\x00\x0e\x00UI" + len(value).to_bytes(2, "little") + value
        (tmp_path / f"{number}.dcm").write_bytes(head)
    with pytest.raises(SlideError, match="holds 2 DICOM series"):
        slide_files(tmp_path / "0.dcm")
    (tmp_path / "2.dcm").unlink()
    assert len(slide_files(tmp_path / "0.dcm").parts) == 2
