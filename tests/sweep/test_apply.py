import json
from pathlib import Path

import pytest

from gigaslide import config
from gigaslide.errors import UsageError
from gigaslide.sweep import apply

PARAMS = Path(__file__).parents[2] / "params.yaml"


def write(tmp_path, **values):
    params, recommendation = tmp_path / "params.yaml", tmp_path / "recommendation.json"
    params.write_text(PARAMS.read_text())
    recommendation.write_text(json.dumps({"values": {key.replace("__", "."): value for key, value in values.items()}}))
    return params, recommendation


def test_only_the_values_change_and_every_comment_stays(tmp_path):
    params, recommendation = write(tmp_path, network__kernel_size=7, network__stride=4, network__filters=[4, 2])
    assert apply.run(params, recommendation) == ["network.kernel_size: 11 -> 7", "network.filters: [3, 2] -> [4, 2]"]
    expected = PARAMS.read_text().replace("  kernel_size: 11", "  kernel_size: 7")
    expected = expected.replace("  filters: [3, 2] #", "  filters: [4, 2] #")
    assert params.read_text() == expected
    assert config.load(params).network.kernel_size == 7
    assert apply.run(params, recommendation) == []
    assert params.read_text() == expected


@pytest.mark.parametrize("value", [0, "eleven"])
def test_a_value_that_is_not_valid_changes_nothing(tmp_path, value):
    params, recommendation = write(tmp_path, network__kernel_size=value)
    with pytest.raises(UsageError, match="kernel_size"):
        apply.run(params, recommendation)
    assert params.read_text() == PARAMS.read_text()
    assert [file.name for file in tmp_path.glob(".*")] == []


def test_without_a_sweep_it_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match="make sweep"):
        apply.run(PARAMS, tmp_path / "none.json")
