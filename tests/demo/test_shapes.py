import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gigaslide.demo import shapes
from gigaslide.demo.noise import lattice
from gigaslide.geometry import Window

PIECES = st.builds(
    shapes.Piece,
    y=st.floats(-500, 500),
    x=st.floats(-500, 500),
    angle=st.floats(0, 6.3),
    half_length_px=st.floats(1, 400),
    half_width_px=st.floats(1, 200),
    bend_px=st.floats(-150, 150),
    wave_px=st.floats(20, 900),
    rough_px=st.floats(0, 30),
    taper=st.floats(0, 1),
)


def anatomy(seed, shape=(2560, 3072), mpp=0.5):
    pieces = shapes.lay_pieces(np.random.default_rng(seed), *shape, mpp)
    return shapes.Anatomy(seed, mpp, pieces, fat_share=0.7, gland_share=0.7, gland_um=90, epidermis=bool(seed % 2))


def regions(made, window):
    found = shapes.regions(made, lattice(window.y.start, window.y.stop), lattice(window.x.start, window.x.stop))
    return found.tissue, found.fat, found.epithelium, found.keratin


@given(st.floats(-3, 3), st.floats(1, 300), st.floats(1, 100))
def test_a_straight_smooth_piece_is_a_capsule(angle, half_length, half_width):
    piece = shapes.Piece(40.0, -30.0, angle, half_length, half_width, 0.0, 1.0, 0.0)
    y, x = np.arange(-200, 200.0, 17), np.arange(-210, 210.0, 13)
    # Distance to the segment between the two ends, by clamped projection.
    direction = np.array([np.sin(angle), np.cos(angle)])
    points = np.stack(np.meshgrid(y - 40, x + 30, indexing="ij"), axis=2)
    foot = np.clip(points @ direction, -half_length, half_length)[..., None] * direction
    expected = half_width - np.linalg.norm(points - foot, axis=2)
    # float32 at a few hundred px: 3e-5 px, and the square root doubles what it is given near zero.
    np.testing.assert_allclose(piece.distance(y, x, np.zeros((24, 33), np.float32)), expected, rtol=0, atol=2e-2)


@given(PIECES, st.integers(-2000, 2000), st.integers(-2000, 2000), st.floats(0, 200))
def test_what_is_out_of_reach_is_far(piece, top, left, margin):
    y, x = np.arange(top, top + 65.0, 4), np.arange(left, left + 65.0, 4)
    worst = np.full((len(y), len(x)), 3, np.float32)
    if not piece.reaches(y, x, margin):
        assert piece.distance(y, x, worst).max() < -margin + 0.01


@given(st.floats(-1000, 1000, width=32))
def test_the_swing_is_a_bounded_wave(turns):
    value = float(shapes.swing(np.float32(turns)))
    assert abs(value) <= 1
    # One period on, up to the rounding of the argument, 6e-5 at 1000, at a slope of 8.
    assert abs(float(shapes.swing(np.float32(turns) + np.float32(1))) - value) < 1e-3


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 120), st.integers(0, 150))
def test_regions_of_a_window_are_the_crop_of_larger_ones(seed, row, column):
    made = anatomy(seed)
    large = Window.of(16 * row, 16 * column, 640, 640)
    small = Window.of(16 * (row + 5), 16 * (column + 13), 256, 128)
    for whole, part in zip(regions(made, large), regions(made, small), strict=True):
        crop = whole[20:85, 52:85]
        # A window without tissue says nothing of what is inside tissue.
        if regions(made, small)[0].max() > -shapes.FAR_UM or part is regions(made, small)[0]:
            np.testing.assert_array_equal(part, crop)


def test_slides_have_tissue_and_glass_and_differ():
    shares = []
    for seed in range(8):
        tissue = regions(anatomy(seed), Window.of(0, 0, 2560, 3072))[0]
        shares.append((tissue > 0).mean())
    assert min(shares) > 0.08
    assert max(shares) < 0.75
    assert len(set(shares)) == len(shares)


def test_a_gigapixel_slide_has_more_pieces_not_larger_noise():
    small, large = (anatomy(3, shape, 0.5).pieces for shape in ((2560, 3072), (16000, 64000)))
    assert len(large) > 3 * len(small)
    widest_um = max(piece.half_width_px for piece in large)  # half a width in px is a width in um at 0.5 um per px
    assert 1000 < widest_um < 6000


def test_shapes_scale_with_the_resolution():
    coarse, fine = anatomy(4, (2560, 3072), 0.5), anatomy(4, (5120, 6144), 0.25)
    half = regions(coarse, Window.of(0, 0, 2560, 3072))[0] > 0
    full = regions(fine, Window.of(0, 0, 5120, 6144))[0] > 0
    # Holes are hashed and fields interpolated alike in um; the 4 px lattice differs by a few px along outlines.
    assert (half != full[::2, ::2]).mean() < 0.02
