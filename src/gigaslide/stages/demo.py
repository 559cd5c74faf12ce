"""Stage `demo`: the demo cohort in data/demo, made only while `slides.dir` of params.yaml points there."""

import time
from pathlib import Path

from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.demo.cohort import default_cohort, write_cohort
from gigaslide.demo.fetch import fetch_real_slide
from gigaslide.machine import usable_threads

REAL_SLIDE = Path("data/source/CMU-1-Small-Region.svs")
ANNOTATION = Path("demo/CMU-1-Small-Region.geojson")
FOLDER = Path("data/demo")


def run(settings: Settings, only_slide: bool = False) -> None:
    """Fetch the real slide if it is not there, and write the cohort; `only_slide` stops after the first.

    Raises:
        GigaslideError: the slide can neither be found nor fetched, or a slide cannot be made.
    """
    fetch_real_slide(REAL_SLIDE)
    if only_slide:
        console.print(f"{REAL_SLIDE}: the real slide is there", markup=False)
        return
    started = time.perf_counter()
    demo = settings.demo
    recipes = default_cohort(demo.height_px, demo.width_px, demo.seed)
    write_cohort(FOLDER, REAL_SLIDE, ANNOTATION, recipes, usable_threads())
    console.print(f"{FOLDER}: {len(recipes)} synthetic slides and a real one in {time.perf_counter() - started:.0f} s")
