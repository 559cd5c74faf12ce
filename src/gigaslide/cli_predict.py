"""`gigaslide predict`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Origin(StrEnum):
    """Where coordinates start."""

    bounds = "bounds"
    full = "full"


class Tool(StrEnum):
    """What cuts patches."""

    clam = "clam"
    trident = "trident"
    tiatoolbox = "tiatoolbox"
    histolab = "histolab"


def predict(
    paths: Annotated[list[Path], typer.Argument(metavar="SLIDE|FOLDER|TABLE...", help="A table is a CSV: slide, mpp.")],
    out: Annotated[Path, typer.Option(help="Folder for the results; the same command again goes on in it.")],
    model: Annotated[
        str | None, typer.Option(help="A .keras file, or models:/gigaslide@champion; else the one in the package.")
    ] = None,
    mpp: Annotated[float | None, typer.Option(help="Pixel size to predict at, um; else the network's.")] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0.001, max=0.999, help="Tissue from this probability on; else the network's.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Slides side by side; else one for every 4 cores.")] = None,
    budget_gb: Annotated[float | None, typer.Option(min=0, help="Of memory, for all; else what is free.")] = None,
    min_piece_um2: Annotated[float, typer.Option(min=0, help="Leave out smaller pieces of tissue.")] = 0.0,
    min_hole_um2: Annotated[float, typer.Option(min=0, help="Fill smaller holes.")] = 0.0,
    simplify_um: Annotated[float, typer.Option(min=0, help="How far GeoJSON outlines may be off; 0: exact.")] = 1.0,
    heatmap: Annotated[bool, typer.Option("--heatmap", help="Write the probabilities too, as OME-TIFF.")] = False,
    origin: Annotated[
        Origin, typer.Option(help="Of GeoJSON coordinates: the scanned area, as in QuPath, or all of level 0.")
    ] = Origin.bounds,
    max_corrupt_fraction: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a slide that may be unreadable before it fails.")
    ] = 0.01,
    export: Annotated[
        list[Tool] | None, typer.Option(help="Hand the masks on to this tool, in OUT/exports; may be given again.")
    ] = None,
    patch_px: Annotated[int, typer.Option(min=1, help="Height and width of the patches for it.")] = 256,
    patch_mpp: Annotated[
        float | None, typer.Option(min=0.01, help="Pixel size of the patches, um; else that of the prediction.")
    ] = None,
    patch_min_tissue: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a patch that has to be tissue; 0: any at all.")
    ] = 0.25,
    cluster: Annotated[
        str | None, typer.Option(help="Over a Ray cluster: auto, HOST:PORT or ray://HOST:PORT (docs/cluster.md).")
    ] = None,
) -> None:
    """Find the tissue of slides: a mask for QuPath, its area, and a contact sheet; straight from the slide files."""
    from gigaslide.exports.request import PatchRequest
    from gigaslide.prediction.request import Request
    from gigaslide.stages import predict as stage
    from gigaslide.stages.predict_worker import Handing

    request = Request(
        mpp, threshold, min_piece_um2, min_hole_um2, simplify_um, heatmap, origin.value, max_corrupt_fraction
    )
    tools = tuple(dict.fromkeys(tool.value for tool in export or ()))
    handing = Handing(tools, PatchRequest(patch_px, patch_mpp, patch_min_tissue))
    options = stage.Options(tuple(paths), out, model, jobs, budget_gb, request, handing)
    if cluster is not None:
        from gigaslide.cluster import slides

        raise typer.Exit(slides.predict(options, cluster))
    raise typer.Exit(stage.run(options))
