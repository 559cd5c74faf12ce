"""histolab's own slide, tiler and mask on an export; run by `real_tools.py` in an environment of its own."""

import csv
import json
import sys
import tempfile
from pathlib import Path


def main(slide, export, source):
    import numpy as np
    from histolab.masks import BinaryMask
    from histolab.slide import Slide
    from histolab.tiler import GridTiler
    from histolab.types import CoordinatePair
    from PIL import Image

    class Mask(BinaryMask):
        def _mask(self, slide):
            return np.array(Image.open(Path(export) / "masks" / f"{slide.name}.png")) > 0

    with tempfile.TemporaryDirectory() as processed:
        opened = Slide(slide, processed)
        with (Path(export) / "tiles" / f"{opened.name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        places, names, sizes = [], [], set()
        for number, row in enumerate(rows):
            coords = CoordinatePair(*(int(row[key]) for key in ("x_ul", "y_ul", "x_br", "y_br")))
            level, size = int(row["level"]), int(row["tile_size"])
            tile = opened.extract_tile(coords, (size, size), level)
            tiler = GridTiler((size, size), level, check_tissue=False)
            names.append(tiler._tile_filename(coords, number) == row["filename"])
            sizes.add(tile.image.size)
            places.append([coords.y_ul, coords.x_ul])
        extracted = GridTiler((size, size), level, check_tissue=False)
        extracted.extract(opened, extraction_mask=Mask(), log_level="ERROR")
        written = len(list(Path(processed).rglob("*.png")))
        opened.locate_mask(Mask())
    return {
        "places": places,
        "patch_px": size,
        "sizes_right": sizes == {(size, size)},
        "names_right": all(names),
        "grid_tiler_tiles": written,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(*sys.argv[1:])) + "\n")
