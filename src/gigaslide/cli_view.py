"""`gigaslide view`."""

from pathlib import Path
from typing import Annotated

import typer


def view(
    slide: Annotated[Path, typer.Argument(help="The slide.")],
    mask: Annotated[
        Path | None, typer.Option(help="What was predicted: a mask image, GeoJSON or XML; corrections start from it.")
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="What an expert has drawn, to compare with.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Where the corrected mask goes, GeoJSON; else beside the mask.")
    ] = None,
    mpp: Annotated[
        float | None, typer.Option(min=1e-6, help="Size of a pixel in um, where the slide does not say or is wrong.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Look at a slide and its mask in the browser, correct the mask, save it for the next training."""
    from gigaslide.viewer import command

    command.run(command.Options(slide, mask, truth, save, mpp, port, browser))
