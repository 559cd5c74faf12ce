import pytest

from gigaslide.benchmarks import child
from gigaslide.errors import GigaslideError


def test_the_sentence_of_a_child_that_fails() -> None:
    with pytest.raises(GigaslideError, match=r"^an area needs --height and --width, or --slide"):
        child.measure([], 60)


def test_a_child_that_takes_too_long_is_ended() -> None:
    with pytest.raises(GigaslideError, match=r"ended after 0 s"):
        child.measure(["--height=64", "--width=64"], 0.01)
