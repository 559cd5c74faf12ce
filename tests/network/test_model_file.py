import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from gigaslide import config
from gigaslide.errors import UsageError
from gigaslide.network import model_file, unet
from gigaslide.network.model_file import About

NETWORK = config.load(Path(__file__).parents[2] / "params.yaml").network
ABOUT = About(0.499, 0.4, 0.97, "abc", "0.1.0", "deadbeef")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = unet.build(NETWORK, 3)
    path = tmp_path_factory.mktemp("model") / "model.keras"
    model_file.save(model, ABOUT, path)
    return model, path


def test_a_network_comes_back_with_what_is_known_of_it(saved):
    model, path = saved
    assert model_file.read_about(path) == ABOUT
    for a, b in zip(model.get_weights(), model_file.load(path).get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_keras_reads_the_file_as_its_own(saved):
    assert keras.saving.load_model(saved[1]).count_params() == 4492


def test_keys_of_a_later_version_are_passed_over(saved, tmp_path):
    other = tmp_path / "other.keras"
    keras.saving.load_model(saved[1]).save(other)
    assert model_file.read_about(other) == About()
    with zipfile.ZipFile(other, "a") as file:
        file.writestr("gigaslide.json", '{"threshold": 0.7, "colour": "blue"}')
    assert model_file.read_about(other) == About(threshold=0.7)


@pytest.mark.parametrize("content", [b"", b"a text", b"PK\x03\x04 cut"])
def test_what_is_no_network_is_refused_in_words(tmp_path, content):
    path = tmp_path / "model.keras"
    path.write_bytes(content)
    for read in (model_file.read_about, model_file.load):
        with pytest.raises(UsageError, match=r"should be a network in Keras' format \(\.keras\)"):
            read(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("other.txt", "")
    with pytest.raises(UsageError, match="another kind of archive"):
        model_file.read_about(path)
