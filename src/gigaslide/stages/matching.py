"""Which annotation belongs to which slide, by name.

An annotation of the slide's own name comes first. Otherwise one name continues the other, after a character that is no
letter and no digit (`s1-mask.png` is of `s1`, not of `s10`; `TCGA-AB-1234.geojson` may be of
`TCGA-AB-1234-01Z.svs`): of several slides that an annotation's name continues it belongs to the longest. Two
annotations for a slide, or two slides for an annotation, are ambiguous, and nothing is chosen.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PICTURES = (".tif", ".tiff", ".png")
# What tells a mask beside slides from a slide, where both are TIFFs.
_MASK_ENDING = re.compile(r"[-_. ](masks?|labels?|annotations?|art[ei]facts|regions)$", re.IGNORECASE)


@dataclass(frozen=True)
class Match:
    """The annotation of a slide; or `why` none was chosen, with more than one candidate."""

    annotation: Path | None = None
    why: str | None = None


def match(names: Sequence[str], annotations: Iterable[Path]) -> dict[str, Match]:
    """Return the match of every slide, by its name.

    Args:
        names: of all slides, also of those whose annotation is not asked for: they may be the better match.
        annotations: files; letter case plays no part in comparing names.
    """
    stems: dict[str, list[Path]] = {}
    for path in sorted(annotations):
        stems.setdefault(path.stem.casefold(), []).append(path)
    keys = {name: name.casefold() for name in names}
    longer = _longer(keys, {stem: paths for stem, paths in stems.items() if stem not in keys.values()})
    return {name: _decide(stems.get(key) or longer[name][0], longer[name][1]) for name, key in keys.items()}


def _longer(
    keys: Mapping[str, str], stems: Mapping[str, list[Path]]
) -> dict[str, tuple[list[Path], Mapping[Path, list[str]]]]:
    """Return, by slide, the annotations whose name continues its, or the other way; and the slides of each."""
    slides_of: dict[Path, list[str]] = {}
    for stem, paths in stems.items():
        continued = [name for name, key in keys.items() if _continues(stem, key)]
        longest = max((len(name) for name in continued), default=0)
        owners = [name for name in continued if len(name) == longest] or [
            name for name, key in keys.items() if _continues(key, stem)
        ]
        slides_of |= dict.fromkeys(paths, owners)
    return {name: ([path for path, owners in slides_of.items() if name in owners], slides_of) for name in keys}


def _decide(candidates: Sequence[Path], slides_of: Mapping[Path, list[str]]) -> Match:
    if not candidates:
        return Match()
    if len(candidates) > 1:
        found = ", ".join(path.name for path in candidates)
        return Match(why=f"{len(candidates)} annotations may be its own: {found}; keep one, with the slide's name")
    owners = slides_of.get(candidates[0], [])
    if len(owners) > 1:
        found = ", ".join(owners)
        return Match(why=f"{candidates[0].name} may be of {len(owners)} slides: {found}; give it the name of one")
    return Match(candidates[0])


def _continues(longer: str, shorter: str) -> bool:
    return longer.startswith(shorter) and len(longer) > len(shorter) and not longer[len(shorter)].isalnum()


def find_below(folder: Path, suffixes: Sequence[str], slides: Iterable[Path]) -> list[Path]:
    """Return the files in and below `folder` that end as annotations do and are none of the `slides`."""
    taken = {path.absolute() for path in slides}
    return sorted(
        path
        for path in folder.absolute().rglob("*")
        if path.suffix.lower() in suffixes and path.is_file() and not path.name.startswith(".") and path not in taken
    )


def find_beside(slides: Sequence[Path], suffixes: Sequence[str]) -> list[Path]:
    """Return the annotations in the slides' own folders; pictures there only if they are called masks.

    Viewers leave thumbnails and labels of slides beside them.
    """
    folders = {slide.absolute().parent for slide in slides}
    taken = {slide.absolute() for slide in slides}
    found = []
    for path in sorted(path for folder in folders for path in folder.iterdir()):
        suffix = path.suffix.lower()
        is_known = suffix in suffixes and path.is_file() and path not in taken
        if is_known and not path.name.startswith(".") and (suffix not in PICTURES or _MASK_ENDING.search(path.stem)):
            found.append(path)
    return found


def masks_among(slides: Sequence[Path]) -> list[Path]:
    """Return those of `slides` that are masks of others: `a-mask.tif` beside `a.tif`."""
    names = {(path.parent, path.stem.casefold()) for path in slides}
    found = []
    for path in slides:
        of = _MASK_ENDING.sub("", path.stem).casefold()
        if of != path.stem.casefold() and (path.parent, of) in names and path.suffix.lower() in PICTURES:
            found.append(path)
    return found
