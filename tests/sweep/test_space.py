import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigaslide.errors import UsageError
from gigaslide.sweep import space
from tests.sweep.worker import small_settings


def test_the_default_grid_has_18_cells_of_which_14_are_networks():
    from gigaslide import config

    found = space.make(config.load())
    assert len(found.cells) == 14
    assert len(found.left_out) == 4
    assert {tuple(out.cell.values()) for out in found.left_out} == {(3, 4), (3, 8), (5, 8), (7, 8)}
    assert all("stride is at most kernel_size" in out.reason for out in found.left_out)


@given(
    kernels=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    strides=st.lists(st.integers(2, 9), min_size=1, max_size=4),
)
def test_every_valid_pair_is_there_once(kernels, strides):
    settings = small_settings({"network.kernel_size": kernels, "network.stride": strides})
    valid = {pair for pair in itertools.product(kernels, strides) if pair[1] <= pair[0]}
    if not valid:
        with pytest.raises(UsageError, match="no combination"):
            space.make(settings)
        return
    found = space.make(settings)
    cells = [tuple(cell.values()) for cell in found.cells]
    assert sorted(cells) == sorted(valid)
    assert len(cells) + len(found.left_out) == len(set(kernels)) * len(set(strides))


def test_any_setting_of_a_training_can_be_varied():
    settings = small_settings(
        {
            "network.filters": [[3, 2], [4, 3]],
            "network.depth": [1, 2],
            "train.learning_rate": {"low": 0.002, "high": 0.008, "step": 0.003},
            "train.precision": ["float32", "bfloat16"],
            "memory.plan": ["auto"],
        }
    )
    found = space.make(settings)
    assert len(found.cells) == 2 * 2 * 3 * 2
    trained = space.trial_settings(settings, found.cells[-1])
    assert trained.network.filters == [4, 3]
    assert trained.train.learning_rate == pytest.approx(0.008)
    assert trained.train.epochs == 4


@pytest.mark.parametrize(
    "parameters",
    [
        {"train.learning_rate": {"low": 0.001, "high": 0.1, "log": True}},
        {"train.learning_rate": {"low": 0.001, "high": 0.1}},
        {"network.kernel_size": {"low": 3, "high": 403}},
        {"network.kernel_size": {"low": 3, "high": 9, "log": True}},
    ],
)
def test_a_large_space_is_sampled(parameters):
    assert space.make(small_settings(parameters)).cells is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sweep.space": {"network.kernel": [3]}}, "received 'network.kernel'"),
        ({"sweep.space": {"memory.budget_gb": [3]}}, "received 'memory.budget_gb'"),
        ({"sweep.space": {"train.epochs": [3]}}, "received 'train.epochs' in both"),
        ({"sweep.space": {"network.stride": []}}, "sweep.space"),
        ({"sweep.space": {"network.stride": {"low": 4, "high": 2}}}, "low is below high"),
        ({"sweep.space": {"network.stride": {"low": 2, "high": 4, "step": 0}}}, "step is above 0"),
        ({"sweep.space": {"train.learning_rate": {"low": 0, "high": 4, "log": True}}}, "low is above 0"),
        ({"sweep.space": {"network.stride": {"low": 2.5, "high": 4}}}, "whole number"),
        ({"sweep.space": {"network.activation": {"low": 2, "high": 4}}}, "no number"),
        ({"sweep.values": {"train.epochs": 0}, "sweep.space": {"network.stride": [2]}}, "no combination"),
    ],
)
def test_mistakes_are_named(change, expected):
    with pytest.raises(UsageError, match=expected):
        space.make(small_settings().replaced(change))


def test_a_range_of_whole_numbers_is_walked_and_one_of_others_has_its_step():
    settings = small_settings(
        {"network.kernel_size": {"low": 3, "high": 6}, "network.stride": {"low": 2, "high": 4, "step": 2}}
    )
    assert [tuple(cell.values()) for cell in space.make(settings).cells] == [
        (3, 2),
        (4, 2),
        (4, 4),
        (5, 2),
        (5, 4),
        (6, 2),
        (6, 4),
    ]
    found = space.make(small_settings({"train.dice_weight": {"low": 0, "high": 1, "step": 0.25}}))
    assert [cell["train.dice_weight"] for cell in found.cells] == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_the_whole_image_in_half_precision_and_a_plan_of_another_network_are_left_out(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    plans = ["auto", "whole", str(tmp_path / "plan.json")]
    settings = small_settings({"memory.plan": plans, "train.precision": ["float32", "bfloat16"]})
    found = space.make(settings)
    assert len(found.cells) == 3
    assert "float32" in found.left_out[0].reason
    assert "plan.json" in found.left_out[1].reason


def test_names_are_short_where_they_can_be():
    assert space.short_names({"network.kernel_size": 0, "train.seed": 0, "sweep.seed": 0}) == {
        "network.kernel_size": "kernel_size",
        "train.seed": "train.seed",
        "sweep.seed": "sweep.seed",
    }
    assert (
        space.describe({"network.stride": 4, "train.learning_rate": 0.00812345}) == "stride 4, learning_rate 0.008123"
    )
