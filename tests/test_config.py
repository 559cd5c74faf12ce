from pathlib import Path
from typing import Any

import pytest
import yaml

from gigaslide import config
from gigaslide.errors import UsageError

PARAMS = Path(__file__).parents[1] / "params.yaml"


def _write(tmp_path: Path, change: Any) -> Path:
    values = yaml.safe_load(PARAMS.read_text())
    change(values)
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_shipped_settings_are_valid_and_flat_names_are_dotted() -> None:
    flat = config.load(PARAMS).flat()
    assert flat["network.kernel_size"] == 11
    assert flat["network.filters"] == "[3, 2]"
    assert flat["memory.budget_gb"] == 128


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    def change(values: Any) -> None:
        values["network"]["kernel_size"] = 0
        values["network"]["kernal"] = 3
        values["train"]["epochs"] = "many"
        del values["evaluate"]["threshold"]

    with pytest.raises(UsageError) as error:
        config.load(_write(tmp_path, change))
    text = str(error.value)
    assert "4 mistake(s)" in text
    assert "network.kernel_size: Input should be greater than or equal to 1; received 0" in text
    assert "network.kernal: this key is unknown" in text
    assert "train.epochs" in text
    assert "evaluate.threshold: this key is missing" in text


def test_stride_larger_than_kernel_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, lambda v: v["network"].update(stride=12))
    with pytest.raises(UsageError, match="received kernel_size=11, stride=12"):
        config.load(path)


@pytest.mark.parametrize("value", [-0.1, 1.1, None, "some"])
def test_the_corrupt_fraction_is_a_share(tmp_path: Path, value: Any) -> None:
    path = _write(tmp_path, lambda v: v["slides"].update(max_corrupt_fraction=value))
    with pytest.raises(UsageError, match=r"slides\.max_corrupt_fraction: Input should be"):
        config.load(path)


def test_a_class_has_one_meaning(tmp_path: Path) -> None:
    path = _write(tmp_path, lambda v: v["labels"].update(glass_classes=["Lumen", "tissue*"]))
    with pytest.raises(UsageError, match=r"a class is in one of tissue_classes, .*; received 'tissue' in 2"):
        config.load(path)


def test_settings_of_before_glass_and_region_classes_hold(tmp_path: Path) -> None:
    def change(values: Any) -> None:
        del values["labels"]["glass_classes"], values["labels"]["region_classes"]

    assert config.load(_write(tmp_path, change)) == config.load(PARAMS)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        config.load(PARAMS).train.seed = 1  # type: ignore[misc]


def test_values_are_replaced_by_their_dotted_keys() -> None:
    settings = config.load(PARAMS)
    changed = settings.replaced({"network.stride": 8, "memory.budget_gb": 2.5})
    assert (changed.network.stride, changed.memory.budget_gb) == (8, 2.5)
    assert settings.network.stride == 4
    assert settings.replaced({}) == settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"network.stride": 12}, "what replaces params.yaml has 1 mistake"),
        ({"network.strides": 4}, "network.strides: this key is unknown"),
        ({"nets.stride": 4}, "nets: this key is unknown"),
    ],
)
def test_replacements_are_validated(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.load(PARAMS).replaced(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "run gigaslide in the project's folder"), ("a: [", "not valid YAML"), ("3", "int")],
)
def test_a_file_that_is_none(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "params.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=message):
        config.load(path)


def test_the_last_filters_repeat_and_more_than_the_depth_are_left() -> None:
    network = config.load(PARAMS).network
    assert network.model_copy(update={"depth": 4}).level_filters == (3, 2, 2, 2)
    assert network.model_copy(update={"depth": 1}).level_filters == (3,)
    assert network.total_stride == 16


@pytest.mark.parametrize("rate", [1e-5, 1e30, 0.008])
def test_written_settings_are_read_again_as_they_were(tmp_path: Path, rate: float) -> None:
    settings = config.load(PARAMS).replaced({"train.learning_rate": rate, "network.filters": [4, 2]})
    (tmp_path / "params.yaml").write_text(config.as_yaml(settings))
    assert config.load(tmp_path / "params.yaml") == settings
