import numpy as np
import PIL
import pytest
from PIL import Image

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.slides import picture_reader
from gigaslide.slides.reader import open_slide
from tests.slides.files import noise

SHAPE = (90, 130)
RGB = noise(SHAPE)


def save(path, pixels, mode=None, **how):
    Image.fromarray(pixels, mode).save(path, **how)
    return path


def whole(slide):
    return slide.read(Window.of(0, 0, *slide.shape))


@pytest.mark.parametrize("name", ["slide.png", "SLIDE.PNG", "slide.jpg", "slide.jpeg"])
def test_pictures_give_pillows_pixels(tmp_path, name):
    path = save(tmp_path / name, RGB)
    slide = open_slide(path)
    assert (slide.library, slide.shape) == (f"pillow {PIL.__version__}", SHAPE)
    assert (slide.mpp_um_per_px, slide.resolution.source) == (None, "unknown")
    rgb, valid = whole(slide)
    np.testing.assert_array_equal(rgb, np.asarray(Image.open(path)))
    assert valid.all()
    window = Window.of(-5, 100, 50, 60)
    np.testing.assert_array_equal(slide.read(window)[0][5:, :30], rgb[:45, 100:])
    assert not slide.read(window)[1][:5].any()


@pytest.mark.parametrize("mode", ["L", "P", "1"])
def test_grey_and_palettes(tmp_path, mode):
    image = Image.fromarray(RGB).convert(mode)
    image.save(tmp_path / "slide.png")
    np.testing.assert_array_equal(whole(open_slide(tmp_path / "slide.png"))[0], np.asarray(image.convert("RGB")))


def test_16_bit_grey_is_scaled_by_its_full_range(tmp_path):
    values = np.random.default_rng(0).integers(0, 65536, SHAPE).astype(np.uint16)
    rgb, _ = whole(open_slide(save(tmp_path / "slide.png", values)))
    np.testing.assert_array_equal(rgb, np.rint(values / 257).astype(np.uint8)[..., None].repeat(3, 2))


def test_alpha_is_laid_over_white(tmp_path):
    alpha = np.random.default_rng(5).integers(0, 256, (*SHAPE, 1)).astype(np.uint8)
    alpha[:40] = 0
    rgb, valid = whole(open_slide(save(tmp_path / "slide.png", np.dstack([RGB, alpha]))))
    np.testing.assert_array_equal(valid, alpha[..., 0] > 0)
    assert np.abs(rgb - (RGB * (alpha / 255) + 255 - alpha)).max() <= 0.5 + 1e-9


def test_a_pixel_size_is_believed_when_a_microscope_gives_it(tmp_path):
    half_um = open_slide(save(tmp_path / "slide.png", RGB, dpi=(50800, 50800)))
    assert half_um.mpp_um_per_px == pytest.approx((0.5, 0.5), rel=1e-3)  # PNG stores whole pixels per metre
    assert half_um.resolution.source == "picture"
    assert open_slide(save(tmp_path / "junk.png", RGB, dpi=(72, 72))).mpp_um_per_px is None


def test_too_large_a_picture_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    path = save(tmp_path / "slide.png", RGB)
    monkeypatch.setattr(picture_reader, "LIMIT_PX", SHAPE[0] * SHAPE[1])
    open_slide(path)
    monkeypatch.setattr(picture_reader, "LIMIT_PX", SHAPE[0] * SHAPE[1] - 1)
    with pytest.raises(SlideError, match=r"slide\.png has 90 x 130 px, and a PNG can only .* convert it to a tiled"):
        open_slide(path)


def test_the_limit_holds_in_memory():
    assert picture_reader.LIMIT_PX * 4 <= 1 << 30


def test_cmyk_is_refused(tmp_path):
    Image.fromarray(RGB).convert("CMYK").save(tmp_path / "slide.jpg")
    with pytest.raises(SlideError, match=r"slide\.jpg should be grey or RGB; its colours are stored as CMYK: save"):
        whole(open_slide(tmp_path / "slide.jpg"))


@pytest.mark.parametrize("name", ["slide.png", "slide.jpg"])
def test_a_cut_picture_fails(tmp_path, name):
    path = save(tmp_path / name, RGB)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SlideError, match=rf"the picture .*{name} cannot be decoded: "):
        whole(open_slide(path))
    path.write_bytes(path.read_bytes()[:9])
    with pytest.raises(SlideError, match=rf"the picture .*{name} cannot be opened: "):
        open_slide(path)
