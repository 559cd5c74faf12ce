"""What TensorFlow is imported without, and that it is there for all else."""

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


@pytest.mark.slow  # another process imports TensorFlow
def test_tensorflow_comes_without_what_nothing_here_uses_and_that_can_be_imported_later():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "(1, 1) 0 BaseEstimator", "9"]
