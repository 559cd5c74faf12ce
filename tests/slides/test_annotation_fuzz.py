from hypothesis import HealthCheck, given, settings

from tests.fuzz_annotations import FILES, check


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(file=FILES)
def test_any_file_is_refused_in_words_or_gives_valid_polygons(tmp_path, file):
    check(tmp_path, *file)
