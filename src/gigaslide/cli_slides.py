"""The commands of `gigaslide` that are about slides: `add`, and `cohort check`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

cohort = typer.Typer(help="The table of the slides.", no_args_is_help=True)


class Split(StrEnum):
    """Where new slides go."""

    auto = "auto"
    train = "train"
    validation = "validation"
    test = "test"


def add(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Slides, or folders of them.")],
    annotations: Annotated[
        Path | None, typer.Option(help="Folder of GeoJSON files or masks, named like the slides; else beside them.")
    ] = None,
    split: Annotated[Split, typer.Option(help="Of the new slides; auto: by patient, stratified.")] = Split.auto,
    move: Annotated[bool, typer.Option("--move", help="Remove the originals once DVC has them.")] = False,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the bytes also where the disk can link.")] = False,
    patients: Annotated[Path | None, typer.Option(help="CSV with the columns slide and patient.")] = None,
    shares: Annotated[str, typer.Option(help="Of train, validation and test, for --split auto.")] = "0.6,0.2,0.2",
    seed: Annotated[int, typer.Option(min=0, help="Of the splits.")] = 0,
    use: Annotated[bool, typer.Option("--use", help="Set slides.dir in params.yaml where that is the demo.")] = False,
    push: Annotated[bool, typer.Option("--push", help="Upload to the DVC remote, too.")] = False,
) -> None:
    """Bring slides and annotations into the project: read, split by patient, in cohort.csv, under DVC."""
    from gigaslide import config
    from gigaslide.errors import UsageError
    from gigaslide.slides.splits import parse_shares
    from gigaslide.stages import add as stage

    if move and copy:
        raise UsageError("--move and --copy exclude each other; give one of them, or none: files are linked then")
    options = stage.Options(
        tuple(paths),
        annotations,
        split.value,
        "move" if move else "copy" if copy else "link",
        parse_shares(shares),
        seed,
        patients,
        use,
        push,
    )
    raise typer.Exit(stage.run(config.load(), options))


@cohort.callback()
def _cohort() -> None:
    # So that `check` stays a word of its own while it is the only one.
    pass


@cohort.command()
def check() -> None:
    """Report all mistakes of cohort.csv, then read every slide of it."""
    from gigaslide import config
    from gigaslide.stages import cohort_check

    raise typer.Exit(cohort_check.run(config.load()))
