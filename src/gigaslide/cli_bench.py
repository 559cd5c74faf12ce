"""The commands `gigaslide bench ...`, which measure what the README states."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

bench = typer.Typer(help="Measure what the README states.", no_args_is_help=True)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {key: value for key, value in values.items() if value is not None}


@bench.command()
def step(
    height: Annotated[int | None, typer.Option(min=1, help="Of the area, in pixels; else the whole --slide.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Of the area, in pixels; else the whole --slide.")] = None,
    plan: Annotated[str | None, typer.Option(help="auto, whole or a plan.json, instead of memory.plan.")] = None,
    budget_gb: Annotated[float | None, typer.Option(help="Instead of memory.budget_gb.")] = None,
    slide: Annotated[Path | None, typer.Option(help="A prepared store to read; else the area is made up.")] = None,
    kernel: Annotated[int | None, typer.Option(help="Instead of network.kernel_size.")] = None,
    stride: Annotated[int | None, typer.Option(help="Instead of network.stride.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed, after one that is not.")] = 5,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16, instead of train.precision.")] = None,
    product: Annotated[bool, typer.Option(help="Also time a matrix product, as a measure of the machine.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where the figures go.")] = None,
) -> None:
    """Measure one training step, time and memory, in this process."""
    import json

    from gigaslide import config, quiet
    from gigaslide.console import console
    from gigaslide.errors import UsageError
    from gigaslide.files import write_text

    if (height is None) != (width is None) or (height is None and slide is None):
        raise UsageError("an area needs --height and --width, or --slide, the whole of which it is then")
    network = {"network.kernel_size": kernel, "network.stride": stride}
    others = {"memory.plan": plan, "memory.budget_gb": budget_gb, "train.precision": precision}
    settings = config.load().replaced(given({**network, **others}))
    quiet.import_tensorflow()
    from gigaslide.benchmarks import step as benchmark
    from gigaslide.slides.store import open_store

    shape = None if height is None or width is None else (height, width)
    figures = benchmark.measure(settings, shape, open_store(slide) if slide else None, steps, product)
    if json_file is not None:
        write_text(json_file, json.dumps(figures, indent=2) + "\n")
    console.print(benchmark.describe_figures(figures), markup=False)


@bench.command()
def steps(
    make_slide: Annotated[
        bool,
        typer.Option("--make-slide", help="First make a slide of 16000 x 64000 px in data/bench, in five minutes."),
    ] = False,
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/results.json"),
    picture: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("docs/bench.png"),
) -> None:
    """Measure time and memory of a step from 4 to 1024 megapixels, whole and streamed; goes on where it stopped."""
    from gigaslide import config
    from gigaslide.benchmarks import large_slide
    from gigaslide.benchmarks import steps as benchmark

    settings = config.load()
    if make_slide:
        large_slide.make(settings)
    benchmark.run(settings, json_file, picture)


@bench.command()
def memory(
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/memory.json"),
) -> None:
    """Measure the peak memory of steps on a grid of networks, areas and plans, beside what was predicted."""
    from gigaslide import config
    from gigaslide.benchmarks import memory as benchmark

    benchmark.run(config.load(), json_file)


@bench.command()
def unet(
    height: Annotated[int, typer.Option(min=1, help="Of the area, in pixels.")] = 8192,
    width: Annotated[int, typer.Option(min=1, help="Of the area, in pixels.")] = 8192,
    filters: Annotated[int, typer.Option(min=1, help="Of the first level; doubled at each.")] = 8,
    levels: Annotated[int, typer.Option(min=1, help="Poolings.")] = 4,
    budget_gb: Annotated[float, typer.Option(help="Of the process.")] = 6.0,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed, after one that is not.")] = 1,
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/unet.json"),
) -> None:
    """Measure a step of the standard U-Net, and compare it with the whole image's."""
    import json

    from gigaslide import quiet
    from gigaslide.console import console
    from gigaslide.files import write_text

    quiet.import_tensorflow()
    from gigaslide.benchmarks import standard_unet as benchmark

    figures = benchmark.measure((height, width), filters, levels, budget_gb, steps)
    write_text(json_file, json.dumps(figures, indent=2) + "\n")
    console.print(
        "{height} x {width} px, {parameters} parameters, {plan}: {step_s:.1f} s a step, peak {peak:.2f} GB (predicted "
        "{predicted:.2f}); against the whole image, in float64: loss {check_loss_difference:.1e}, gradient "
        "{check_gradient_difference:.1e}".format(
            **figures, peak=figures["peak_bytes"] / 1e9, predicted=figures["predicted_peak_bytes"] / 1e9
        ),
        markup=False,
    )


@bench.command()
def training(
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 20,
    budget_gb: Annotated[float | None, typer.Option(help="Instead of memory.budget_gb.")] = None,
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/training.json"),
) -> None:
    """Train on the slide of 16000 x 64000 px, end to end with MLflow, and say what Dice, time and memory came out."""
    from gigaslide import config
    from gigaslide.benchmarks import training as benchmark

    benchmark.run(config.load(), steps, budget_gb, json_file)


@bench.command()
def seeds(
    count: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, ... to train with.")] = 10,
    jobs: Annotated[int, typer.Option(min=1, help="Trainings side by side.")] = 2,
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/seeds.json"),
) -> None:
    """Train once per seed and say how many converge, how far they spread and how bad the worst is."""
    from gigaslide import config
    from gigaslide.benchmarks import seeds as benchmark

    benchmark.run(config.load(), count, jobs, json_file)


@bench.command()
def predict(
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/predict.json"),
) -> None:
    """Predict the demo's real slide and that of 16000 x 64000 px, time, memory and outputs that agree."""
    from gigaslide.benchmarks import predicting as benchmark

    benchmark.run(json_file)


@bench.command()
def prepare(
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/prepare.json"),
) -> None:
    """Prepare the demo's real slide and that of 16000 x 64000 px, beside what OpenSlide alone needs to decode them."""
    from gigaslide import config
    from gigaslide.benchmarks import preparing as benchmark

    benchmark.run(config.load(), json_file)


@bench.command()
def cluster(
    side: Annotated[
        list[int] | None, typer.Option(min=1, help="Of a square area, in pixels; more than once for more areas.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="In each of which every cluster is measured.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Timed in a round, after one that is not.")] = 1,
    json_file: Annotated[Path, typer.Option("--json", help="Where the figures go.")] = Path("benchmarks/cluster.json"),
) -> None:
    """Measure a step without Ray and by 1, 2 and 4 workers of one thread, beside what `plan --workers` predicts."""
    from gigaslide import config, quiet

    settings = config.load()
    quiet.import_tensorflow()
    from gigaslide.benchmarks import cluster as benchmark

    shapes = [(length, length) for length in side] if side else benchmark.SHAPES
    benchmark.run(settings, json_file, shapes, rounds, steps)
