"""`gigaslide COMMAND`.

Heavy libraries are imported by the command that needs them, so that `--help` answers at once.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gigaslide import __version__, cli_bench, cli_predict, cli_slides, cli_view
from gigaslide.cli_bench import given
from gigaslide.errors import GigaslideError

app = typer.Typer(
    name="gigaslide",
    help="Train a segmentation network end to end on gigapixel whole-slide images, under a memory budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cli_bench.bench, name="bench")
sweep = typer.Typer(help="Compare kernel sizes, strides and other settings under the memory budget.")
app.add_typer(sweep, name="sweep")

_Cluster = Annotated[
    str | None,
    typer.Option(
        help="Over a Ray cluster: auto, HOST:PORT or ray://HOST:PORT; else cluster.address (docs/cluster.md)."
    ),
]


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
    cluster: _Cluster = None,
) -> None:
    """Read the cohort's slides and annotations into stores that training can read window by window."""
    from gigaslide import config

    changes = {"cluster.address": cluster, "slides.max_corrupt_fraction": 0.0 if strict else None}
    settings = config.load().replaced(given(changes))
    if settings.cluster.address is not None:
        from gigaslide.cluster import slides

        raise typer.Exit(slides.prepare(settings))
    from gigaslide.stages import prepare as stage

    raise typer.Exit(stage.run(settings))


@app.command()
def train(
    cluster: _Cluster = None,
) -> None:
    """Train the network on the split `train`; goes on where a killed training stopped."""
    from gigaslide import config, quiet

    settings = config.load().replaced(given({"cluster.address": cluster}))
    quiet.import_tensorflow()
    if settings.cluster.address is not None:
        from gigaslide.cluster import command

        command.train(settings)
        return
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
    height: Annotated[int | None, typer.Option(min=1, help="Of the area, in pixels.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Of the area, in pixels.")] = None,
    budget_gb: Annotated[
        float | None,
        typer.Option(
            min=0, help="Of the process, or of each machine of a cluster; else memory.budget_gb, or what is free here."
        ),
    ] = None,
    kernel: Annotated[int | None, typer.Option(help="Instead of network.kernel_size.")] = None,
    stride: Annotated[int | None, typer.Option(help="Instead of network.stride.")] = None,
    cores: Annotated[
        int | None,
        typer.Option(min=1, help="Of the machine; else as many as this one has, or the workers of a cluster need."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Of a cluster, to plan for instead of one machine (docs/cluster.md).")
    ] = None,
    workers_per_machine: Annotated[int, typer.Option(min=1, help="At most, of a cluster.")] = 16,
    network_gbps: Annotated[float, typer.Option(min=0.001, help="Of the link of each machine, both ways.")] = 10.0,
    storage_gbps: Annotated[
        float | None,
        typer.Option(min=0.001, help="Of what the storage gives each machine; else pixels share the network's link."),
    ] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Instead of one area: 8 to 512 workers on 1 to 1000 gigapixels.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw what --scaling found, PNG.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the chosen plan, for memory.plan, or what --scaling found.")
    ] = None,
) -> None:
    """Show how an area can be trained on in a memory budget: the plans, with predicted memory and time.

    With --workers over a cluster: also what travels, and what bounds the time of a step.
    """
    from gigaslide import config
    from gigaslide.errors import UsageError

    settings = config.load().replaced(given({"network.kernel_size": kernel, "network.stride": stride}))
    if (height is None) != (width is None) or (height is None) != scaling:
        raise UsageError("an area needs --height and --width; --scaling has areas of its own, and takes neither")
    if picture is not None and not scaling:
        raise UsageError("--picture shows what --scaling finds: give both, or neither")
    if workers is None and not scaling:
        from gigaslide.stages import plan as stage

        stage.run(settings, (height or 0, width or 0), budget_gb, cores, json_file)
        return
    from gigaslide.cluster.planning import command as planning
    from gigaslide.cluster.planning import scaling as table
    from gigaslide.cluster.planning.forecast import Cluster

    threads = settings.cluster.threads_per_worker
    cluster = Cluster(workers or 1, workers_per_machine, threads, cores, network_gbps, storage_gbps)
    if scaling:
        table.run(settings, cluster, budget_gb, json_file, picture)
    else:
        planning.run(settings, (height or 0, width or 0), cluster, budget_gb, json_file)


@sweep.callback(invoke_without_command=True)
def run_sweep(
    context: typer.Context,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was tried; the runs in MLflow stay.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Trainings on one machine, instead of sweep.jobs.")] = None,
    plan: Annotated[str | None, typer.Option(help="auto, whole or a plan.json, instead of memory.plan.")] = None,
    budget_gb: Annotated[float | None, typer.Option(help="Instead of memory.budget_gb.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the study, instead of sweep.name.")] = None,
    storage: Annotated[str | None, typer.Option(help="Of the study, instead of sweep.storage.")] = None,
    cluster: _Cluster = None,
) -> None:
    """Train what `sweep:` in params.yaml declares, compare Dice, time and memory; goes on where it stopped."""
    if context.invoked_subcommand is not None:
        return
    from gigaslide import config

    options = {"sweep.jobs": jobs, "sweep.name": name, "sweep.storage": storage, "cluster.address": cluster}
    memory_options = {"memory.plan": plan, "memory.budget_gb": budget_gb}
    settings = config.load().replaced(given(options | memory_options))
    if settings.cluster.address is not None:
        from gigaslide.cluster import command as over_cluster

        raise typer.Exit(over_cluster.sweep(settings, fresh))
    from gigaslide.sweep import command

    raise typer.Exit(command.run(settings, fresh))


@sweep.command("apply")
def apply_sweep() -> None:
    """Write the recommended settings into params.yaml, for the next `make repro`."""
    from gigaslide.console import console
    from gigaslide.sweep import apply

    changed = apply.run()
    console.print("\n".join(changed) if changed else "params.yaml has these values already", markup=False)


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
