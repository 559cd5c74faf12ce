import numpy as np
import pytest
import tifffile

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides.diagnosis import cut_short, why_unreadable
from gigaslide.slides.reader import open_slide
from tests.slides.files import noise, write_slide


def cut(path, size_bytes):
    path.write_bytes(path.read_bytes()[:size_bytes])
    return path


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"the file is empty (0 bytes); copy the slide again"),
        (b"slide,split\na.svs,train\n", "it is a text file, not a slide"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "it is a JPEG picture, not a slide; convert it to a tiled TIFF"),
        (b"%PDF-1.7", "it is a PDF document, not a slide; convert it to a tiled TIFF"),
        (bytes(600), "it is no slide format that OpenSlide knows, or its beginning is damaged"),
        (b"II*\0", "it is no slide format that OpenSlide knows, or its beginning is damaged"),
    ],
)
def test_reasons(tmp_path, content, reason):
    path = tmp_path / "slide.svs"
    path.write_bytes(content)
    assert why_unreadable(path) == reason


def test_places_that_hold_no_file(tmp_path):
    assert why_unreadable(tmp_path / "absent.svs") == "there is no such file"
    assert why_unreadable(tmp_path) == "it is a folder; name the slide file in it"


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_a_tiff_whose_directory_is_cut_off(tmp_path, bigtiff, byteorder):
    path = tmp_path / "slide.tif"
    with tifffile.TiffWriter(path, bigtiff=bigtiff, byteorder=byteorder) as writer:
        for _ in range(2):
            writer.write(noise((100, 100)), tile=(64, 64), metadata=None)
    content = bytearray(path.read_bytes())
    # The address of the first directory, moved behind the end, as in files that write it last.
    start, width = (8, 8) if bigtiff else (4, 4)
    content[start : start + width] = (len(content) + 7).to_bytes(width, "little" if byteorder == "<" else "big")
    path.write_bytes(content)
    reason = f"first directory starts at byte {len(content) + 7}, the file ends at byte {len(content)}"
    assert reason in why_unreadable(path)
    with pytest.raises(SlideError, match="it is cut short"):
        open_slide(path)


def test_a_slide_whose_pixels_are_cut_off(tmp_path):
    path = write_slide(tmp_path / "slide.tif", noise((256, 256)))
    assert cut_short(path) is None
    cut(path, path.stat().st_size - 5000)
    with pytest.raises(SlideError, match=r"slide\.tif is damaged: it is cut short: its pixels reach to byte"):
        open_slide(path)


def test_a_slide_whose_full_resolution_is_cut_off_says_so_when_it_is_read(tmp_path):
    """OpenSlide looks at the smallest level when it opens a slide, so the loss of others shows later."""
    path = write_slide(tmp_path / "slide.tif", noise((256, 256)), noise((64, 64)))
    with tifffile.TiffFile(path) as tiff:
        last_tile = tiff.pages.first.tags["TileOffsets"].valueoffset + 4 * 15
    content = bytearray(path.read_bytes())
    content[last_tile : last_tile + 4] = len(content).to_bytes(4, "little")
    path.write_bytes(content)
    slide = open_slide(path)
    assert slide.read(Window.of(0, 0, 64, 64))[1].all()
    with pytest.raises(SlideError, match=r"slide\.tif cannot be read at level 0, rows 192 to 256, .* it is cut short"):
        slide.read(Window.of(192, 192, 64, 64))


def test_every_length_of_a_cut_slide_gives_a_reason(tmp_path):
    whole = write_slide(tmp_path / "whole.tif", np.zeros((200, 200, 3), np.uint8)).read_bytes()
    path = tmp_path / "slide.tif"
    for size_bytes in range(1, len(whole) - 1, 7):
        path.write_bytes(whole[:size_bytes])
        assert why_unreadable(path)
