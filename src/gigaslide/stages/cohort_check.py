"""`gigaslide cohort check`: all mistakes of the cohort table at once, then every slide of it, read."""

from pathlib import Path

from gigaslide.config import Settings
from gigaslide.console import console
from gigaslide.slides.cohort import mistakes_in_words, parse_cohort
from gigaslide.stages import listing
from gigaslide.stages.check import CheckJob, check_all
from gigaslide.stages.listing import Line
from gigaslide.stages.paths import COHORT


def run(settings: Settings, results: Path = COHORT) -> int:
    """Check the table and its slides; return the exit code, 1 if there is any problem.

    Raises:
        UsageError: there is no table, or it is empty or no CSV.
    """
    path = settings.slides.cohort_path
    rows, mistakes = parse_cohort(path)
    most = settings.slides.max_corrupt_fraction
    jobs = [CheckJob(row.slide, row.annotation, row.mpp_um_per_px, settings.labels, most) for row in rows]
    checked = check_all(jobs, settings.prepare.workers)
    lines = [
        Line(
            row.name,
            "ok" if answer.problem is None else "problem",
            row.split,
            "none" if row.annotation is None else row.annotation.suffix,
            answer.found,
            answer.problem,
        )
        for row, answer in zip(rows, checked, strict=True)
    ]
    if lines:
        listing.show(lines)
        listing.write_thumbnails(results / "thumbnails.png", lines)
    if mistakes:
        console.print(mistakes_in_words(path, mistakes), markup=False)
    failed = sum(line.problem is not None for line in lines)
    console.print(f"{len(lines) - failed} of {len(lines)} slides are in order", markup=False)
    return int(failed > 0 or len(mistakes) > 0)
