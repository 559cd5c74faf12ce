import re
from html.parser import HTMLParser

import pytest

from gigaslide.reporting.page import Picture, SlidePictures, duration, number, render, slide_order
from tests.reporting.results import SETTINGS, results

VOID = {"meta", "img", "br", "input", "link"}


def picture(name):
    return Picture(f"{name}.png", b"\x89PNG" + name.encode(), f"picture of {name}")


def page(names=("good", "bad"), shown=("bad", "good")):
    slides = [SlidePictures(n, *(picture(f"{n}_{k}") for k in "abc"), (1234, 5)) for n in shown]
    charts = [picture("slides"), picture("artefacts")] if names else [None, None]
    return render(SETTINGS, results(names), picture("training"), *charts, slides)


class Checker(HTMLParser):
    """Refuses tags that are not closed in order; collects addresses and text."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.links, self.ids, self.alts = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.sources += [values["src"]] if "src" in values else []
        self.links += [values["href"]] if "href" in values else []
        self.ids += [values["id"]] if "id" in values else []
        if tag == "img":
            self.alts.append(values.get("alt"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(text):
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    return checker


def plain(text):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", text, flags=re.S)))


def test_the_page_is_well_formed_and_needs_no_network():
    text = page()
    checker = check(text)
    assert len(checker.sources) == 3 + 2 * 3
    assert all(source.startswith("data:image/png;base64,") for source in checker.sources)
    assert all(checker.alts)
    inside = {link[1:] for link in checker.links if link.startswith("#")}
    assert inside == set(checker.ids)
    assert "http" not in text and "url(" not in text and "<script" not in text


def test_headline_and_paper_stand_apart():
    text = plain(page())
    values = results().metrics
    assert f"Test Dice {values['dice_mean']:.4f} ± {values['dice_sd']:.4f} on 2 slides" in text
    assert "Paper, not measured here" in text
    assert "0.989 ± 0.005" in text and "81 s (mean)" in text and "over 100 GB" in text and "4,940 steps" in text
    assert "50.0 ms" in text  # 0.5 s for 10 megapixels


def test_slides_are_sorted_by_dice_and_one_without_mpp_is_named():
    assert slide_order(results().slides) == ["bad", "good"]
    text = plain(page())
    assert "Without an mpp, and therefore with a tolerance of 8 px: bad." in text
    assert "Dice of 2 slides" not in text
    assert "The 1 slides with the lowest Dice of 2." in plain(page(shown=("bad",)))


def test_artefacts_without_tissue_have_a_dash_for_dice():
    row = re.search(r"pen red .*? elsewhere|pen red .*?Training", plain(page()))[0]
    assert row.startswith("pen red 8 0.0 % 25.00 % 100.00 % - - 2 8 0 0")


def test_machine_settings_and_commit_are_there_and_escaped():
    text = page()
    assert "Some &lt;CPU&gt;" in text
    assert "abc123" in text
    for key in SETTINGS.flat():
        assert f"<code>{key}</code>" in text


def test_without_a_test_slide_the_page_says_so():
    text = page(names=(), shown=())
    check(text)
    assert "Trained, but not tested: no slide is in the test split" in text
    assert "nothing was evaluated" in text


def test_one_slide_has_no_interval():
    text = plain(page(names=("good",), shown=("good",)))
    assert "no interval: fewer than two slides" in text
    assert "on 1 slide the network never saw" in text


@pytest.mark.parametrize(
    "seconds, text",
    [(None, "-"), (0.4321, "0.432 s"), (81, "81 s"), (125, "2 min 5 s"), (401_040, "111 h 24 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize("value, text", [(None, "-"), (float("nan"), "-"), (1234.5, "1,234.5000"), (0.98, "0.9800")])
def test_number(value, text):
    assert number(value) == text
