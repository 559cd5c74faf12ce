"""tiatoolbox's own extractors and stores on an export; run by `real_tools.py` in an environment of its own."""

import json
import sqlite3
import sys
from pathlib import Path


class _Connection(sqlite3.Connection):
    """For a Python that was built without loadable extensions of SQLite: tiatoolbox allows them, and loads none."""

    def enable_load_extension(self, enabled):
        pass


def _allow_extensions():
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        connect = sqlite3.connect
        sqlite3.connect = lambda *values, **more: connect(*values, **{"factory": _Connection, **more})


def main(slide, export, source):
    _allow_extensions()
    import numpy as np
    from tiatoolbox.annotation.storage import SQLiteStore
    from tiatoolbox.tools.patchextraction import PointsPatchExtractor, SlidingWindowPatchExtractor
    from tiatoolbox.wsicore.wsireader import WSIReader

    export, name = Path(export), Path(slide).stem
    (points,) = export.glob(f"points_*/{name}.csv")
    frame, patch = points.parent.name.removeprefix("points_").split("_")
    resolution, patch_px = float(frame.removesuffix("mpp")), int(patch.removesuffix("px"))
    at = {"resolution": resolution, "units": "mpp", "patch_size": patch_px}
    extractor = PointsPatchExtractor(slide, locations_list=str(points), **at)
    starts = extractor.locations_df[["y", "x"]].to_numpy()
    reader = WSIReader.open(slide)
    same = all(
        np.array_equal(
            extractor[number],
            reader.read_rect((int(x), int(y)), (patch_px, patch_px), resolution, "mpp", coord_space="resolution"),
        )
        for number, (y, x) in enumerate(starts)
    )
    store = SQLiteStore.from_geojson(str(export / "annotations" / f"{name}.geojson"))
    more = {"within_bound": True, "min_mask_ratio": 0.25, **at}
    windows = {
        "from_mask": str(export / "masks" / f"{name}.png"),
        "from_annotations": store,
    }
    found = {}
    for key, mask in windows.items():
        sliding = SlidingWindowPatchExtractor(slide, input_mask=mask, **more)
        found[key] = sliding.locations_df[["y", "x"]].to_numpy().tolist()
    return {
        "places": (starts // patch_px).tolist() if not np.any(starts % patch_px) else starts.tolist(),
        "patch_px": patch_px,
        "pixels_right": bool(same),
        **{key: [[y // patch_px, x // patch_px] for y, x in places] for key, places in found.items()},
        "annotations": len(store),
        "contours_area_px": float(sum(item.geometry.area for item in store.values())),
        "slide_at_resolution": [int(size) for size in reader.slide_dimensions(resolution, "mpp")][::-1],
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(*sys.argv[1:])) + "\n")
