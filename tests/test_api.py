"""The five functions, and the examples in their docstrings, which run as they are written."""

import doctest
import subprocess
import sys

import numpy as np
import pytest

import gigaslide
from gigaslide import api, config
from gigaslide.geometry import Window
from tests.stages.project import PARAMS, make_project

FUNCTIONS = ["load_model", "open_slide", "plan", "predict_mask", "train"]


def test_the_package_offers_them_and_loads_nothing_for_it():
    assert sorted(gigaslide.__all__) == FUNCTIONS
    assert set(FUNCTIONS) <= set(dir(gigaslide))
    with pytest.raises(AttributeError, match="has no attribute 'patches'"):
        gigaslide.patches  # noqa: B018
    code = "import sys, gigaslide; print(sorted(set(sys.modules) & {'numpy', 'tensorflow', 'openslide', 'pydantic'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_example_runs(name, real_slide, tmp_path):
    if name == "train":
        make_project(tmp_path, network={"kernel_size": 11, "stride": 4})
    (example,) = doctest.DocTestFinder(recurse=False).find(
        getattr(api, name),
        name,
        globs={"gigaslide": gigaslide, "slide_path": real_slide, "project": tmp_path, "Window": Window},
    )
    assert example.examples
    told = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    runner.run(example, out=told.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(told)


def test_the_default_network_is_that_of_the_settings():
    assert config.load(PARAMS).network == api.DEFAULT_NETWORK


def test_a_window_of_the_mask_is_that_of_the_whole(real_slide):
    mask = gigaslide.predict_mask(real_slide, min_piece_um2=50, min_hole_um2=50)
    window = Window.of(1000, 700, 300, 500)
    np.testing.assert_array_equal(mask.read(window), mask.labels[window.slices])
    assert mask.mpp_um_per_px == (0.499, 0.499)
    assert sum(polygon.area for polygon in mask.polygons()) == np.count_nonzero(mask.labels == 1)
