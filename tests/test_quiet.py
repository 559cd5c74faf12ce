"""What TensorFlow is imported without, and that it is there for all else."""

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import sys
from gigaslide import quiet
quiet.import_tensorflow()
left_out = ("sklearn", "pandas", "matplotlib")
print(*[name for name in left_out if name in sys.modules])
import keras, pandas, matplotlib.figure, sklearn.base
print(pandas.DataFrame([1]).shape, len(matplotlib.figure.Figure().axes), sklearn.base.BaseEstimator.__name__)
print(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]).count_params())
"""
ONEDNN = """
from gigaslide import quiet
quiet.import_tensorflow()
from gigaslide.doctor import probe
print(probe._onednn())
"""


@pytest.mark.slow  # another process imports TensorFlow
def test_tensorflow_comes_without_what_nothing_here_uses_and_that_can_be_imported_later():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "(1, 1) 0 BaseEstimator", "9"]


@pytest.mark.slow  # other processes import TensorFlow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="TensorFlow has oneDNN only there")
@pytest.mark.parametrize(("said", "expected"), [(None, "True"), ("0", "False")])
def test_onednn_is_on_whatever_the_processor_unless_the_environment_says_otherwise(said: str | None, expected: str):
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    environment |= {"TF_ENABLE_ONEDNN_OPTS": said} if said else {}
    done = subprocess.run([sys.executable, "-c", ONEDNN], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == expected
