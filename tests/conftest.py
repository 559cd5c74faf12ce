"""What tests of several parts share."""

from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from gigaslide.demo.fetch import fetch_real_slide
from gigaslide.errors import GigaslideError

# A busy machine is no failure: no example is timed.
settings.register_profile("gigaslide", deadline=None)
settings.load_profile("gigaslide")

SOURCE = Path(__file__).parents[1] / "data/source"


@pytest.fixture(scope="session")
def real_slide() -> Path:
    """Return the path of CMU-1-Small-Region.svs, fetched once; without a network the test is skipped."""
    path = SOURCE / "CMU-1-Small-Region.svs"
    SOURCE.mkdir(parents=True, exist_ok=True)
    with FileLock(SOURCE / ".fetch.lock"):  # tests run side by side
        try:
            fetch_real_slide(path)
        except GigaslideError as error:
            pytest.skip(f"NOT TESTED on the real slide: {error}")
    return path
