from pathlib import Path

from gigaslide import config
from gigaslide.benchmarks import large_slide
from gigaslide.slides.store import open_store

SETTINGS = config.load(Path(__file__).parents[2] / "params.yaml")


def test_the_slide_is_made_and_prepared_once(tmp_path: Path, real_slide: Path) -> None:
    def make() -> dict[str, int]:
        large_slide.make(SETTINGS, (400, 900), tmp_path, real_slide)
        return {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}

    first = make()
    store = open_store(tmp_path / "large.zarr")
    assert store.shape == (400, 900)
    assert store.attributes["tissue_px"] > 0
    assert make() == first
