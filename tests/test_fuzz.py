"""A short run of the fuzzers; the long ones are run by hand (tests/fuzz_*.py)."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gigaslide.errors import UsageError
from tests import fuzz_cohort
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


def test_damaged_cohort_tables_are_read_or_refused_in_words(tmp_path):
    fuzz_cohort.make_folder(tmp_path)
    came = Counter()
    for seed in range(500):
        outcome, time_s = fuzz_cohort.try_seed(tmp_path, seed)
        assert outcome in ("read", "refused"), f"seed {seed}: {outcome}"
        assert time_s < fuzz_cohort.LIMIT_S
        came[outcome] += 1
    assert min(came["read"], came["refused"]) > 50


def test_the_outcome_of_a_table_tells_a_fault(tmp_path, monkeypatch):
    """A check that lets everything pass would find nothing."""
    fuzz_cohort.make_folder(tmp_path)
    table = tmp_path / "cohort.csv"
    table.write_text("slide,annotation,split,mpp\na.tif,,train,\nb.svs,,validation,0.5\n")
    assert fuzz_cohort.outcome(table) == "read"
    table.write_text("slide,annotation,split,mpp\na.tif,,train,\n")
    assert fuzz_cohort.outcome(table) == "refused"

    def refuses(text):
        def read(path):
            raise UsageError(text)

        return read

    monkeypatch.setattr(fuzz_cohort, "read_cohort", refuses(f"{table} cannot be read: \x1b[2J and more"))
    assert fuzz_cohort.outcome(table).startswith("no reason: ")
    monkeypatch.setattr(fuzz_cohort, "read_cohort", refuses("a mistake somewhere in some table of yours"))
    assert fuzz_cohort.outcome(table).startswith("no reason: ")
    monkeypatch.setattr(fuzz_cohort, "read_cohort", lambda path: 1 / 0)
    assert fuzz_cohort.outcome(table).startswith("crash: ZeroDivisionError")
