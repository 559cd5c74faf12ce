from datetime import datetime

import pytest

from gigaslide.stages.prepare_state import SlideState, after, at_start, read_states, write_states

NOW = datetime(2026, 1, 2, 3, 4, 5)


def test_states_survive_a_file(tmp_path):
    states = {"b": SlideState("failed", 2, 1.5, "2026-01-02 03:04", "the reason"), "a": SlideState("interrupted", 1)}
    write_states(tmp_path / "s.json", states)
    assert read_states(tmp_path / "s.json") == states


@pytest.mark.parametrize("text", [None, "", "[]", '{"slides": {"a": {"unknown": 1}}}', '{"slides": [1]}'])
def test_a_damaged_file_is_none(tmp_path, text):
    if text is not None:
        (tmp_path / "s.json").write_text(text)
    assert read_states(tmp_path / "s.json") == {}


def test_attempts_are_counted_until_a_store_is_made_and_then_anew():
    state = None
    for outcome, attempts in [("failed", 1), ("failed", 2), ("prepared", 3), ("prepared", 1), ("failed", 1)]:
        state = after(state, outcome, 2.0, "why" if outcome == "failed" else None, NOW)
        assert (state.state, state.attempts, state.tried) == (outcome, attempts, "2026-01-02 03:04")


def test_a_slide_found_unchanged_keeps_when_and_how_long_it_was_made():
    made = after(None, "prepared", 7.0, None, NOW)
    assert after(made, "unchanged", 0.1, None, datetime(2027, 1, 1)) == SlideState("unchanged", 1, 7.0, made.tried)
    assert after(None, "unchanged", 0.1, None, NOW) == SlideState("unchanged", 1)


def test_a_run_begins_with_its_own_slides_and_counts_what_was_interrupted():
    states = {"a": SlideState("failed", 2), "gone": SlideState("prepared", 1)}
    found = at_start(states, ["a", "b", "c"], ["a", "b"])
    assert {name: (state.state, state.attempts) for name, state in found.items()} == {
        "a": ("interrupted", 3),
        "b": ("interrupted", 1),
    }
