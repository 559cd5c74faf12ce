"""A short run of the fuzzers; the long ones are run by hand (tests/fuzz_*.py)."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz_tiff import LIMIT_BYTES, LIMIT_S, Worker


def test_damaged_tiffs_are_read_or_refused_in_words():
    worker = Worker()

    @settings(max_examples=300, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 10**9))
    def tried(seed):
        came, time_s, peak_bytes = worker.try_seed(seed)
        assert ":" not in came, came
        assert time_s < LIMIT_S
        assert peak_bytes < LIMIT_BYTES

    try:
        tried()
    finally:
        worker.close()
