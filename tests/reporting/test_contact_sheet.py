"""The contact sheet in a real browser: order, filters, the large picture."""

import re
import shutil

import pytest
from PIL import Image

from gigaslide.reporting import contact_sheet

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def done(name, tissue_mm2, **more):
    return {
        "status": "done" if tissue_mm2 else "no_tissue",
        "slide": f"/slides/{name}.svs",
        "shape_px": [3000, 4000],
        "mpp_um_per_px": [0.5, 0.5],
        "tissue_mm2": tissue_mm2,
        "tissue_px": int(tissue_mm2 * 4e6),
        "tissue_share": tissue_mm2 / 3,
        "pieces": 2,
        "hole_share": 0.01,
        "invalid_share": 0.0,
        "corrupt_share": 0.0,
        "warnings": [],
        "outputs_bytes": {"mask.tif": 1, "mask.geojson": 1},
        **more,
    }


SUMMARIES = {
    "small": done("small", 0.5, warnings=["its colours are not those of a slide"], pieces=9),
    "large": done("large", 2.0),
    "blank": done("blank", 0.0),
    "a<b&c": done("a<b&c", 1.0, hole_share=0.5),
    "torn": {"status": "failed", "slide": "/slides/torn.svs", "reason": "/slides/torn.svs is cut short", "attempts": 3},
    "s10": done("s10", 0.5),
    "s9": done("s9", 0.5),
}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sheet")
    for name in SUMMARIES:
        (folder / name).mkdir()
        for file, side in (("thumbnail.jpg", 48), ("overlay.png", 200)):
            Image.new("RGB", (side, side), (200, 100, 150)).save(folder / name / file)
    (folder / "index.html").write_text(contact_sheet.render(list(SUMMARIES), list(SUMMARIES.values()), "net"), "utf-8")
    return folder / "index.html"


def test_the_page_says_it_all_without_scripts_and_escapes_names(page_file):
    text = page_file.read_text("utf-8")
    assert "7 slides, 4.5 mm² of tissue, 1 without tissue, 1 failed" in text
    assert re.findall(r'data-name="([^"]+)"', text)[0] == "torn"
    assert "torn.svs is cut short" in text
    assert "/slides/torn.svs" not in text
    assert "tried 3 times" in text
    assert "a<b" not in text
    assert 'src="a%3Cb%26c/thumbnail.jpg"' in text


@pytest.fixture(scope="module")
def page(page_file):
    if BROWSER is None:
        pytest.skip("NOT TESTED in a browser: chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        problems = []
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.goto(page_file.as_uri())
        yield page
        assert problems == []
        browser.close()


def shown(page):
    cards = page.locator("article:visible")
    return [cards.nth(number).get_attribute("data-name") for number in range(cards.count())]


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("attention", ["torn", "large", "a<b&c", "s9", "s10", "small", "blank"]),
        ("least", ["blank", "torn"]),
        ("most", ["large", "a<b&c"]),
        ("pieces", ["small"]),
        ("holes", ["a<b&c"]),
        ("name", ["a<b&c", "blank", "large", "s9", "s10", "small", "torn"]),
    ],
)
def test_slides_are_sorted(page, order, first):
    page.select_option("#sort", order)
    found = shown(page)
    assert found[: len(first)] == first
    assert len(found) == len(SUMMARIES)


def test_slides_are_chosen_by_outcome_and_name(page):
    page.select_option("#sort", "name")
    for chip, names in (("failed 1", ["torn"]), ("no tissue 1", ["blank"]), ("with warnings 1", ["small"])):
        page.get_by_role("button", name=chip).click()
        assert shown(page) == names
    page.get_by_role("button", name="all 7").click()
    page.fill("#find", "S1")
    assert shown(page) == ["s10"]
    assert page.inner_text("#count") == "1 of 7"
    page.fill("#find", "")
    assert len(shown(page)) == 7


def test_a_slide_opens_large_and_the_arrows_go_on(page):
    page.select_option("#sort", "name")
    page.locator("article[data-name=large] .picture").click()
    dialog = page.locator("dialog")
    assert dialog.is_visible()
    assert dialog.locator("b").inner_text() == "large"
    page.wait_for_function("document.querySelector('dialog img').naturalWidth === 200")
    page.keyboard.press("ArrowRight")
    assert dialog.locator("b").inner_text() == "s9"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert dialog.locator("b").inner_text() == "blank"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
