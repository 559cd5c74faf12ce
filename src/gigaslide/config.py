"""`params.yaml` as frozen, validated settings. This file is its sole reader.

Functions elsewhere take the values, or the block, that they need; nothing else opens the file. All mistakes are
reported at once, each with its key, what was expected and what was found.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gigaslide.classes import class_key
from gigaslide.errors import UsageError

PARAMS_FILE = Path("params.yaml")

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Demo(_Block):
    """The demo cohort: size of the synthetic slides."""

    height_px: Annotated[int, Field(ge=256, le=64000)]
    width_px: Annotated[int, Field(ge=256, le=64000)]
    seed: Seed


class Slides(_Block):
    """Where the slides are, and the resolution (um per px) to work at; None is level 0.

    `max_corrupt_fraction` of a slide's pixels may be lost to tiles that cannot be decoded; with more it fails.
    `cache_dir`: a folder on a fast disk to which a slide is copied while it is prepared.
    """

    dir: str
    cohort: str
    mpp_um_per_px: PositiveFloat | None
    max_corrupt_fraction: Annotated[float, Field(ge=0, le=1)]
    cache_dir: Annotated[str, Field(min_length=1)] | None = None

    @property
    def cohort_path(self) -> Path:
        """The cohort table; the paths in it are relative to its folder."""
        return Path(self.dir) / self.cohort


class Labels(_Block):
    """How annotations become tissue, glass and invalid pixels."""

    tissue_classes: Annotated[list[str | int], Field(min_length=1)]
    glass_classes: list[str | int] = Field(default_factory=list)
    ignore_classes: list[str | int]
    region_classes: list[str] = Field(default_factory=list)
    geojson_origin: Literal["bounds", "full"] = "bounds"
    without_annotation: Literal["error", "auto"]

    @model_validator(mode="after")
    def _one_meaning_each(self) -> "Labels":
        lists: list[Sequence[str | int]] = [
            self.tissue_classes,
            self.glass_classes,
            self.ignore_classes,
            self.region_classes,
        ]
        counts = Counter(key for names in lists for key in {class_key(name) for name in names})
        for key, count in counts.items():
            if count > 1:
                raise ValueError(
                    "a class is in one of tissue_classes, glass_classes, ignore_classes and region_classes; "
                    f"received {key!r} in {count}"
                )
        return self


class Prepare(_Block):
    """What part of a slide goes into its store, and how much is held in memory for it."""

    region_px: Literal["whole"] | Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]
    window_px: Annotated[int, Field(ge=512, multiple_of=512)]
    workers: PositiveInt | None


class Network(_Block):
    """The U-Net (network/unet.py)."""

    kernel_size: PositiveInt
    stride: Annotated[int, Field(ge=2)]
    depth: PositiveInt
    filters: Annotated[list[PositiveInt], Field(min_length=1)]
    head_filters: PositiveInt
    activation: Literal["leaky_relu", "relu", "elu"]
    negative_slope: Annotated[float, Field(ge=0, lt=1)]

    @property
    def level_filters(self) -> tuple[int, ...]:
        """Filters of each level, from the image down."""
        return tuple(self.filters[min(level, len(self.filters) - 1)] for level in range(self.depth))

    @property
    def total_stride(self) -> int:
        """Pixels of the image per pixel of the deepest map, along one axis."""
        return int(self.stride**self.depth)

    @model_validator(mode="after")
    def _stride_fits_kernel(self) -> "Network":
        if self.stride > self.kernel_size:
            raise ValueError(
                f"stride is at most kernel_size, or pixels between the kernels are never seen; "
                f"received kernel_size={self.kernel_size}, stride={self.stride}"
            )
        return self


class Memory(_Block):
    """The budget of the process, and the plan that keeps to it."""

    budget_gb: PositiveFloat
    plan: Annotated[str, Field(min_length=1)]  # auto, whole, or a plan.json


class Train(_Block):
    """The training loop."""

    seed: Seed
    epochs: PositiveInt
    learning_rate: PositiveFloat
    warmup_steps: Annotated[int, Field(ge=0)]
    clip_norm: PositiveFloat
    average_momentum: Annotated[float, Field(ge=0, lt=1)]
    dice_weight: Annotated[float, Field(ge=0)]
    cross_entropy_weight: Annotated[float, Field(ge=0)]
    augment: bool
    patience_epochs: PositiveInt
    precision: Literal["float32", "bfloat16"]

    @model_validator(mode="after")
    def _some_loss(self) -> "Train":
        if self.dice_weight == 0 and self.cross_entropy_weight == 0:
            raise ValueError("one of dice_weight and cross_entropy_weight is above 0; received 0 and 0")
        return self


class Evaluate(_Block):
    """Metrics on the test split."""

    threshold: Annotated[float, Field(gt=0, lt=1)]
    boundary_tolerance_um: PositiveFloat
    bootstrap_samples: PositiveInt
    seed: Seed


class Report(_Block):
    """The report's pictures."""

    overlay_px: Annotated[int, Field(ge=200, le=8000)]


class Tracking(_Block):
    """Names in MLflow, and its server: None is that of the environment (MLFLOW_TRACKING_URI), or none."""

    experiment: Annotated[str, Field(min_length=1)]
    model_name: Annotated[str, Field(min_length=1)]
    # A user and a password belong into the environment.
    uri: Annotated[str, Field(pattern=r"^https?://[^@\s]+$")] | None = None


class Cluster(_Block):
    """The Ray cluster that prepares, trains and sweeps (cluster/), and its bucket; no part of what results are."""

    address: Annotated[str, Field(pattern=r"^(auto|(ray://)?[^:/\s]+:\d+)$")] | None = None
    workers: PositiveInt | None = None
    threads_per_worker: PositiveInt = 1
    stores: Annotated[str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]+(/[^/\s]+)*$")] | None = None


class Span(_Block):
    """A range of values of a setting; `log`: small values as often as large ones."""

    low: int | float
    high: int | float
    step: int | float | None = None
    log: bool = False

    @model_validator(mode="after")
    def _has_an_order(self) -> "Span":
        if not self.low < self.high:
            raise ValueError(f"low is below high; received low={self.low}, high={self.high}")
        if self.step is not None and (self.step <= 0 or self.log):
            raise ValueError(f"step is above 0, and not with log; received step={self.step}, log={self.log}")
        if self.log and self.low <= 0:
            raise ValueError(f"low is above 0 with log; received {self.low}")
        return self


class Sweep(_Block):
    """The search over other settings (sweep/)."""

    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # also of a folder
    space: Annotated[dict[str, Annotated[list[Any], Field(min_length=1)] | Span], Field(min_length=1)]
    values: dict[str, Any]
    extent_px: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]
    grid_cells: PositiveInt
    trials: PositiveInt
    jobs: PositiveInt
    prune: bool
    storage: Annotated[str, Field(min_length=1)] | None
    seed: Seed

    @model_validator(mode="after")
    def _names_settings_of_a_training(self) -> "Sweep":
        blocks: dict[str, type[_Block]] = {"network": Network, "train": Train, "memory": Memory}
        known = [f"{block}.{key}" for block, model in blocks.items() for key in model.model_fields]
        known.remove("memory.budget_gb")  # the constraint itself
        for name in [*self.space, *self.values]:
            if name not in known:
                raise ValueError(f"space and values name settings of network, train or memory.plan; received {name!r}")
        for name in set(self.space) & set(self.values):
            raise ValueError(f"a setting is in space or in values; received {name!r} in both")
        return self


class Settings(_Block):
    """All of `params.yaml`, block by block."""

    demo: Demo
    slides: Slides
    labels: Labels
    prepare: Prepare
    network: Network
    memory: Memory
    train: Train
    evaluate: Evaluate
    report: Report
    tracking: Tracking
    sweep: Sweep
    cluster: Cluster = Cluster()

    @model_validator(mode="after")
    def _plan_computes_in_precision(self) -> "Settings":
        if self.memory.plan == "whole" and self.train.precision != "float32":
            raise ValueError("memory.plan: whole computes in float32; train.precision: bfloat16 needs another plan")
        return self

    def flat(self) -> dict[str, str | int | float | bool | None]:
        """Return every value that a run's result depends on, by dotted key (`network.kernel_size`); lists as text."""
        flat: dict[str, Any] = {}
        for block, values in self.model_dump(exclude={"sweep": True, "cluster": True, "tracking": {"uri"}}).items():
            for key, value in values.items():
                flat[f"{block}.{key}"] = str(value) if isinstance(value, list) else value
        return flat

    def replaced(self, values: Mapping[str, Any]) -> "Settings":
        """Return the settings with other `values`, by dotted key (`network.kernel_size`), validated like the file.

        Raises:
            UsageError: a key is unknown, or a value is out of range.
        """
        changed = self.model_dump()
        for name, value in values.items():
            block, _, key = name.partition(".")
            changed.setdefault(block, {})[key] = value
        return _validated(changed, "what replaces params.yaml")


def as_yaml(settings: Settings) -> str:
    """Return the text of a params.yaml with these settings. Not JSON: 1e-05 is a text in YAML 1.1."""
    return str(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False))


def load(path: Path = PARAMS_FILE) -> Settings:
    """Read and validate `params.yaml`.

    Raises:
        UsageError: the file is missing, is no YAML, or has values that are missing, unknown or out of range (all of
            them are listed).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path} is not in {Path.cwd()}: run gigaslide in the project's folder") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} should hold one block per stage (demo:, slides:, ...); found {type(values).__name__}")
    return _validated(values, str(path))


def _validated(values: dict[str, Any], source: str) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise UsageError("\n".join([f"{source} has {error.error_count()} mistake(s):", *_lines(error)])) from None


def _lines(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "this key is unknown"
        elif item["type"] == "missing":
            message = "this key is missing"
        elif "received" not in message:
            message += f"; received {item['input']!r}"
        lines.append(f"  {where}: {message}")
    return lines
