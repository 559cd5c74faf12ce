"""CLAM's own data sets on an export; run by `real_tools.py` in an environment of its own, with a checkout of CLAM."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import openslide
from stand_ins import stand_in_for


def main(slide, export, source):
    missing = stand_in_for("torch", "torchvision")
    sys.path.insert(0, source)
    from dataset_modules.dataset_h5 import Dataset_All_Bags, Whole_Slide_Bag_FP

    # As extract_features_fp.py does.
    bags = Dataset_All_Bags(os.path.join(export, "process_list_autogen.csv"))  # noqa: PTH118
    slide_ext = Path(slide).suffix
    (slide_id,) = [bags[number].split(slide_ext)[0] for number in range(len(bags))]
    wsi = openslide.open_slide(os.path.join(Path(slide).parent, slide_id + slide_ext))  # noqa: PTH118
    dataset = Whole_Slide_Bag_FP(f"{export}/patches/{slide_id}.h5", wsi, img_transforms=np.asarray)
    places, same = [], True
    for number in range(len(dataset)):
        item = dataset[number]
        x, y = map(int, item["coord"])
        region = wsi.read_region((x, y), dataset.patch_level, (dataset.patch_size,) * 2).convert("RGB")
        same = same and bool(np.array_equal(item["img"], np.asarray(region)))
        places.append([y, x])
    return {"places": places, "pixels_right": same, "patch_px": int(dataset.patch_size), "stand_ins": missing}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(*sys.argv[1:])) + "\n")
