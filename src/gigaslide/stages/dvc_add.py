"""`python -m gigaslide.stages.dvc_add FOLDER`: `dvc add FOLDER`, with no second copy of a file where it can link.

DVC moves a file into its cache and links it back. With `cache.type: reflink,hardlink,...` on a disk without reflinks it
copies instead of moving: hard links have to come first for that. So the order of the configured types is changed for
this one call, there where a reflink does not work. What is left of a slide then is one file with several names.

Prints whether a remote is configured, `remote` or `no remote`; a failure is one line on standard error and exit code 1.
"""

import sys
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc_objects.fs.system import reflink

_DEFAULT_TYPES = ["reflink", "copy"]  # DVC's own


def _can_reflink(folder: Path) -> bool:
    source, target = folder / ".reflink-source.partial", folder / ".reflink-target.partial"
    try:
        source.write_bytes(b"0")
        reflink(source, target)
    except OSError:
        return False
    finally:
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
    return True


def _types(folder: Path) -> list[str]:
    with Repo() as repo:
        types = list(repo.config["cache"].get("type") or _DEFAULT_TYPES)
    if "hardlink" in types and types[0] == "reflink" and not _can_reflink(folder):
        types.remove("hardlink")
        types.insert(0, "hardlink")
    return types


def main(folder: Path) -> int:
    """Add the folder; return the exit code."""
    try:
        with Repo(config={"cache": {"type": ",".join(_types(folder))}}) as repo:
            repo.add([str(folder)])
            has_remote = bool(repo.config["remote"])
    except (DvcException, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("remote\n" if has_remote else "no remote\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
