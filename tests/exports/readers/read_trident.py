"""TRIDENT's own readers on an export; run by `real_tools.py` in an environment of its own, with a checkout of it."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from stand_ins import stand_in_for

STAND_INS = ("torch", "torchvision", "timm", "einops", "einops_exts", "transformers", "huggingface_hub", "safetensors")
MORE_STAND_INS = ("pyvips", "aicsimageio", "segmentation_models_pytorch", "ipywidgets")


def main(slide, export, source):
    missing = stand_in_for(*STAND_INS, *MORE_STAND_INS)
    sys.path.insert(0, source)
    import trident
    from trident.IO import read_coords

    job, slide = Path(export), Path(slide)
    (patches,) = job.glob("*/patches/*_patches.h5")
    attributes, coords = read_coords(str(patches))
    with tempfile.TemporaryDirectory() as folder:  # with nothing but the slide
        (Path(folder) / slide.name).symlink_to(slide.resolve())
        shutil.copytree(job, Path(folder) / "job")
        processor = trident.Processor(job_dir=f"{folder}/job", wsi_source=folder, max_workers=0)
        (wsi,) = processor.wsis
        wsi._lazy_initialize()
        # As extract_patch_features does.
        patcher = wsi.create_patcher(
            patch_size=attributes["patch_size"],
            src_mag=attributes["level0_magnification"],
            dst_mag=attributes["target_magnification"],
            custom_coords=coords,
            pil=True,
        )
        tiles = [(tile.size, int(x), int(y)) for tile, x, y in patcher]
        # As extract_tissue_coords does, from the contours.
        again = wsi.create_patcher(
            patch_size=256, src_mag=wsi.mag, dst_mag=20, mask=wsi.gdf_contours, coords_only=True, threshold=0.25
        )
        from_contours = [[int(y), int(x)] for x, y in again]
        area = float(wsi.gdf_contours.area.sum())
        before = patches.stat().st_mtime_ns
        processor.run_patching_job(target_magnification=20, patch_size=256, overlap=0, visualize=False)
        log = (Path(folder) / "job" / patches.parent.parent.name / "_logs_coords.txt").read_text()
        processor.release()
    return {
        "places": [[y, x] for _, x, y in tiles],
        "patch_px": int(attributes["patch_size"]),
        "sizes_right": {size for size, _, _ in tiles} == {(attributes["patch_size"],) * 2},
        "patch_size_level0_right": bool(attributes["patch_size_level0"] == patcher.patch_size_src),
        "slide_size_right": [attributes["level0_width"], attributes["level0_height"]] == [wsi.width, wsi.height],
        "magnification_right": bool(attributes["level0_magnification"] == wsi.mag),
        "from_contours": from_contours,
        "contours_area_px": area,
        "patching_job_says": log.strip(),
        "untouched_right": patches.stat().st_mtime_ns == before,
        "stand_ins": missing,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(*sys.argv[1:])) + "\n")
