"""At which pixel size a slide is predicted: that of the network's training, where both are known."""

import warnings

from gigaslide.errors import GigaslideWarning
from gigaslide.network.model_file import About
from gigaslide.slides.levels import LEVEL_TOLERANCE
from gigaslide.slides.reader import SlideReader


def at_working_mpp(reader: SlideReader, mpp_um_per_px: float | None, about: About) -> SlideReader:
    """Return the slide on the grid it is predicted on.

    Args:
        reader: the slide, at level 0.
        mpp_um_per_px: what the user asked for; None: the pixel size the network was trained at.
        about: of the network.

    Raises:
        SlideError: the slide cannot be read at the size that the user asked for.

    Warns:
        GigaslideWarning: the slide cannot be read at the network's size, and is predicted at full resolution.
    """
    if mpp_um_per_px is not None:
        return reader.at_mpp(mpp_um_per_px)
    trained = about.mpp_um_per_px
    if trained is None:
        return reader
    mpp = reader.resolution.mpp_um_per_px
    if mpp is None:
        _warn(
            f"{reader.path} does not say how large its pixels are, and the network was trained at {trained:g} um per "
            "px: predicted at full resolution; if its pixels are of another size, give it in the mpp column of a table"
        )
        return reader
    if min(mpp) > trained * (1 + LEVEL_TOLERANCE) or max(mpp) > trained * (1 + LEVEL_TOLERANCE):
        _warn(
            f"{reader.path} has {max(mpp):.4g} um per px at full resolution, coarser than the {trained:g} that the "
            "network was trained at: predicted at full resolution"
        )
        return reader
    return reader.at_mpp(trained)


def _warn(text: str) -> None:
    warnings.warn(text, GigaslideWarning, stacklevel=3)
