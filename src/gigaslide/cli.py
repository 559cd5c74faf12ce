"""`gigaslide COMMAND`.

Heavy libraries are imported by the command that needs them, so that `--help` answers at once.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gigaslide import __version__
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


@app.command()
def prepare() -> None:
    """Read the cohort's slides and annotations into stores that training can read window by window."""
    from gigaslide import config
    from gigaslide.stages import prepare as stage

    raise typer.Exit(stage.run(config.load()))


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
