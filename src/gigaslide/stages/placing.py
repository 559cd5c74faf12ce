"""Bringing a slide's files into the slide folder: linked where the disk can, never half there.

A file appears under its name when it is whole. Several files of one slide: the folder of them is renamed into place as
a whole, and for an MRXS before the file that names it.
"""

import os
import shutil
from pathlib import Path

from dvc_objects.fs.system import reflink

from gigaslide import files
from gigaslide.errors import SlideError
from gigaslide.slides.slide_files import SlideFiles, slide_sha256


def target_of(slide: SlideFiles, folder: Path) -> Path:
    """Return what is opened for the slide once it is in `folder`; itself, if it is there already."""
    if is_below(slide.main, folder):
        return slide.main
    return folder / slide.name / slide.main.name if slide.has_own_folder else folder / slide.main.name


def is_below(path: Path, folder: Path) -> bool:
    """Whether `path` is in `folder`, by their names."""
    return folder.absolute() in path.absolute().parents


def place(slide: SlideFiles, target: Path, copy: bool) -> None:
    """Bring all files of the slide to where `target` is its main file; nothing happens if it is there.

    Args:
        slide: where it is now.
        target: see `target_of`.
        copy: copy the bytes also where a link would do.

    Raises:
        SlideError: the disk refuses.
    """
    if slide.main.absolute() == target.absolute():
        return
    try:
        if slide.has_own_folder:
            with files.atomic_path(target.parent) as temporary:
                temporary.mkdir()
                for part in slide.parts:
                    bring(part, temporary / part.relative_to(slide.root), copy)
            return
        others = [part for part in slide.parts if part != slide.main]
        if others:
            with files.atomic_path(target.with_suffix("")) as temporary:
                for part in others:
                    bring(part, temporary / part.relative_to(slide.main.with_suffix("")), copy)
        with files.atomic_path(target) as temporary:
            bring(slide.main, temporary, copy)
    except OSError as error:
        raise SlideError(
            f"{slide.main} cannot be brought to {target}: {error.strerror or error}; free or unlock that folder"
        ) from None


def bring(source: Path, target: Path, copy: bool = False) -> None:
    """Make `target` the same file as `source`: a clone or a hard link where the disk can, else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source = source.resolve()
    if not copy:
        for link in (reflink, os.link):
            try:
                link(source, target)
                return
            except OSError:
                target.unlink(missing_ok=True)
    shutil.copyfile(source, target)


def is_same(slide: SlideFiles, other: SlideFiles) -> bool:
    """Whether two slides have the same bytes."""
    if [part.stat().st_size for part in slide.parts] != [part.stat().st_size for part in other.parts]:
        return False
    if all(one.samefile(two) for one, two in zip(slide.parts, other.parts, strict=True)):
        return True
    return slide_sha256(slide.main) == slide_sha256(other.main)


def remove_moved(slide: SlideFiles) -> None:
    """Remove the files of a slide that was moved, and the folders that are empty then."""
    for part in slide.parts:
        part.unlink(missing_ok=True)
    folders = {part.parent for part in slide.parts} - ({slide.root} if not slide.has_own_folder else set())
    for folder in sorted(folders, key=lambda path: -len(path.parts)):
        if not any(folder.iterdir()):
            folder.rmdir()


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed run left half written."""
    for path in (*folder.glob(".*.partial*"), *folder.glob(".*.old"), *folder.glob("annotations/.*.partial*")):
        files.remove(path)
