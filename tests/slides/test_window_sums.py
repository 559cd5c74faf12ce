import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.slides.damage import Damage
from gigaslide.slides.window_sums import WindowSums
from tests.slides.files import noise


def sums(seed):
    random = np.random.default_rng(seed)
    rgb = np.maximum(noise((40, 50), seed), random.integers(150, 256))
    mask = random.choice(np.array([0, 1, 255], np.uint8), (40, 50))
    damage = Damage({(0, seed, 1)}, seed, f"tile {seed}" if seed % 2 else "")
    return WindowSums.of(rgb, mask != 255, mask, damage)


def everything(found):
    return found.as_json(), found.glass.colour()


@given(st.lists(st.integers(0, 20), unique=True, min_size=1, max_size=5))
def test_what_was_written_down_adds_up_to_the_same(seeds):
    direct, through_a_file = WindowSums(), WindowSums()
    for seed in seeds:
        direct.add(sums(seed))
        through_a_file.add(WindowSums.from_json(json.loads(json.dumps(sums(seed).as_json()))))
    assert everything(direct) == everything(through_a_file)


def test_a_windows_sums():
    rgb = np.full((8, 8, 3), 240, np.uint8)
    rgb[4:] = (100, 20, 90)
    mask = np.zeros((8, 8), np.uint8)
    mask[4:], mask[0, :2] = 1, 255
    found = WindowSums.of(rgb, mask != 255, mask, Damage())
    assert [found.labels[label] for label in (0, 1, 255)] == [30, 32, 2]
    # Every fourth row and column: (0, 0), which is not valid, (0, 4), (4, 0), (4, 4), of which one is bright.
    assert found.as_json()["glass"] == {"pixels": 3, "bright": [[720, 1, 240, 240, 240]]}
