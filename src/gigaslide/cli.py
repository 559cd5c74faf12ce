"""`gigaslide COMMAND`.

Heavy libraries are imported by the command that needs them, so that `--help` answers at once.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gigaslide import __version__, cli_predict, cli_slides, cli_view
from gigaslide.errors import GigaslideError

app = typer.Typer(
    name="gigaslide",
    help="Train a segmentation network end to end on gigapixel whole-slide images, under a memory budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure what the README states.", no_args_is_help=True)
app.add_typer(bench, name="bench")
sweep = typer.Typer(help="Compare kernel sizes, strides and other settings under the memory budget.")
app.add_typer(sweep, name="sweep")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"gigaslide {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    # TensorFlow's C++ start-up messages are not for users; said before it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if debug else "3")


@app.command()
def demo(
    only_slide: Annotated[bool, typer.Option("--only-slide", help="Fetch the real slide and stop.")] = False,
) -> None:
    """Make the demo cohort: one real slide, fetched once, and synthetic ones."""
    from gigaslide import config
    from gigaslide.stages import demo as stage

    stage.run(config.load(), only_slide)


app.command()(cli_slides.add)
app.add_typer(cli_slides.cohort, name="cohort")
app.command()(cli_predict.predict)
app.command()(cli_view.view)


@app.command()
def prepare(
    strict: Annotated[bool, typer.Option("--strict", help="Fail a slide at its first corrupt tile.")] = False,
) -> None:
    """Read the cohort's slides and annotations into stores that training can read window by window."""
    from gigaslide import config
    from gigaslide.stages import prepare as stage

    settings = config.load()
    raise typer.Exit(stage.run(settings.replaced({"slides.max_corrupt_fraction": 0.0}) if strict else settings))


@app.command()
def train() -> None:
    """Train the network on the split `train`; goes on where a killed training stopped."""
    from gigaslide import config, quiet

    settings = config.load()
    quiet.import_tensorflow()
    from gigaslide.stages import train as stage

    stage.run(settings)


@app.command()
def evaluate() -> None:
    """Measure the network, and the classical method, on the split `test`."""
    from gigaslide import config, quiet

    settings = config.load()
    quiet.import_tensorflow()
    from gigaslide.stages import tracked

    tracked.evaluate(settings)


@app.command()
def report() -> None:
    """Write results/report/index.html and its pictures."""
    from gigaslide import config
    from gigaslide.stages import tracked

    tracked.report(config.load())


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what is installed, which device computes and whether it computes right, and what would fail."""
    from gigaslide.doctor import command

    raise typer.Exit(command.run(as_json))


@app.command()
def plan(
    height: Annotated[int, typer.Option(min=1, help="Of the area, in pixels.")],
    width: Annotated[int, typer.Option(min=1, help="Of the area, in pixels.")],
    budget_gb: Annotated[
        float | None, typer.Option(min=0, help="Of the process, in GB; else memory.budget_gb, or what is free here.")
    ] = None,
    kernel: Annotated[int | None, typer.Option(help="Instead of network.kernel_size.")] = None,
    stride: Annotated[int | None, typer.Option(help="Instead of network.stride.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Cores to plan for; else those of this machine.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the chosen plan, for memory.plan.")] = None,
) -> None:
    """Show how an area can be trained on in a memory budget: the plans, with predicted memory and time."""
    from gigaslide import config
    from gigaslide.stages import plan as stage

    settings = config.load().replaced(_given({"network.kernel_size": kernel, "network.stride": stride}))
    stage.run(settings, (height, width), budget_gb, workers, json_file)


@sweep.callback(invoke_without_command=True)
def run_sweep(
    context: typer.Context,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was tried; the runs in MLflow stay.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Trainings side by side, instead of sweep.jobs.")] = None,
    plan: Annotated[str | None, typer.Option(help="auto, whole or a plan.json, instead of memory.plan.")] = None,
    budget_gb: Annotated[float | None, typer.Option(help="Instead of memory.budget_gb.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the study, instead of sweep.name.")] = None,
    storage: Annotated[str | None, typer.Option(help="Of the study, instead of sweep.storage.")] = None,
) -> None:
    """Train what `sweep:` in params.yaml declares, compare Dice, time and memory; goes on where it stopped."""
    if context.invoked_subcommand is not None:
        return
    from gigaslide import config
    from gigaslide.sweep import command

    options = {"sweep.jobs": jobs, "sweep.name": name, "sweep.storage": storage}
    memory_options = {"memory.plan": plan, "memory.budget_gb": budget_gb}
    raise typer.Exit(command.run(config.load().replaced(_given(options | memory_options)), fresh))


@sweep.command("apply")
def apply_sweep() -> None:
    """Write the recommended settings into params.yaml, for the next `make repro`."""
    from gigaslide.console import console
    from gigaslide.sweep import apply

    changed = apply.run()
    console.print("\n".join(changed) if changed else "params.yaml has these values already", markup=False)


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
    settings = config.load().replaced(_given({**network, **others}))
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


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {key: value for key, value in values.items() if value is not None}


def main() -> None:
    """Run the command line; a `GigaslideError` is one sentence on standard error and an exit code."""
    try:
        app()
    except GigaslideError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"gigaslide: {error}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(
            f"gigaslide: {type(error).__name__}: {error} (this is a defect: "
            "run again with `gigaslide --debug ...` for the traceback and report it)",
            err=True,
        )
        sys.exit(1)
