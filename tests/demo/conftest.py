"""The atlases are made once per test process: they take a few seconds."""

import pytest

from gigaslide.demo import texture

MPP = 0.5


@pytest.fixture(scope="session")
def atlases(real_slide):
    return texture.load_atlases(real_slide, MPP)
