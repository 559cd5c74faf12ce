"""The viewer in a real browser, as a pathologist uses it: look, find, correct, save, and train on that."""

import io
import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
import yaml
from PIL import Image
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from gigaslide.cli import app
from gigaslide.config import Labels
from gigaslide.geometry import Window
from gigaslide.slides.labels import open_labels
from gigaslide.slides.reader import open_slide
from gigaslide.slides.store import open_split
from gigaslide.stages import versioning
from gigaslide.viewer.command import Options
from gigaslide.viewer.paint import STYLES
from tests.slides.files import write_slide
from tests.stages.project import PARAMS, gigaslide
from tests.viewer.running import running, served
from tests.viewer.sessions import SHAPE, features, masks, write_files, write_mask
from tests.viewer.test_corrected import distance_to_path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="NOT TESTED: no Chromium on this machine")
NAMES = Labels(tissue_classes=["Tissue"], ignore_classes=["Ignore"], without_annotation="error")
WHOLE = Window.of(0, 0, *SHAPE)
STEP_PX = 2.5  # of the screen: points of a stroke nearer to each other are left out, and the pointer's whole pixels


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


class Viewer:
    """The page, and where things are on it."""

    def __init__(self, browser, address):
        self.page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        self.complaints = []
        self.page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.addresses = set()
        self.page.on("request", lambda request: self.addresses.add(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("body[data-ready=true]")
        self.settle()

    def settle(self):
        """Wait until nothing moves, loads or waits to be sent any more."""
        self.page.wait_for_function(
            """() => {
                const viewer = OpenSeadragon.getViewer("slide"), world = viewer.world;
                const images = [...Array(world.getItemCount()).keys()].map((index) => world.getItemAt(index));
                return !document.querySelector("[aria-busy=true]") && !world.needsDraw() &&
                    images.every((image) => image.getOpacity() === 0 || image.getFullyLoaded());
            }"""
        )
        self.page.wait_for_timeout(60)

    def key(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
        self.page.wait_for_timeout(60)
        self.settle()

    def frame(self):
        """Return the screen position of the slide's corner, and px of the screen per px of the slide."""
        return self.page.evaluate(
            """() => {
                const image = OpenSeadragon.getViewer("slide").world.getItemAt(0);
                const at = (x) => image.imageToViewerElementCoordinates(new OpenSeadragon.Point(x, 0));
                return [at(0).x, at(0).y, (at(100).x - at(0).x) / 100];
            }"""
        )

    def on_screen(self, points):
        left, top, zoom = self.frame()
        return [(left + x * zoom, top + y * zoom) for x, y in points]

    def centre(self):
        """Return (y, x) of the slide in the middle of the part that no panel covers."""
        left, top, zoom = self.frame()
        return (14 + (800 - 96 - 14) / 2 - top) / zoom, (290 + (1280 - 290 - 14) / 2 - left) / zoom

    def drag(self, points):
        """Press at the first of some points of the slide, move along the others, release."""
        (first, *others) = self.on_screen(points)
        self.page.mouse.move(*first)
        self.page.mouse.down()
        for point in others:
            self.page.mouse.move(*point, steps=4)
        self.page.mouse.up()
        self.page.wait_for_timeout(60)
        self.settle()

    def click(self, points):
        for point in self.on_screen(points):
            self.page.mouse.click(*point)

    def colour_share(self, style):
        """Return the share of the slide's part of the screen that has the colour of an outline."""
        picture = np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")).astype(int)
        near = np.abs(picture[20:690, 300:1000] - STYLES[style].line[:3]).max(axis=-1) < 40
        return near.mean()

    def text(self, selector):
        return self.page.inner_text(selector)

    def strokes(self):
        return self.page.evaluate("fetch('/api/state').then((answer) => answer.json())")["strokes"]


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("slide"))


def arguments(options, save):
    return [str(options.slide), "--mask", str(options.mask), "--truth", str(options.truth), "--save", str(save)]


@pytest.fixture(scope="module")
def looked_at(browser, given, tmp_path_factory):
    """A viewer for the tests that change nothing."""
    folder = tmp_path_factory.mktemp("looked_at")
    with served(replace(given, save=folder / "slide.geojson")) as address:
        viewer = Viewer(browser, address)
        yield viewer
        assert viewer.complaints == []
        hosts = {re.match(r"https?://[^/]+", each)[0] for each in viewer.addresses if not each.startswith("data:")}
        assert hosts == {address.partition("/?")[0]}  # nothing from elsewhere: it works offline
        viewer.page.close()


def test_zoom_and_read_out(looked_at):
    looked_at.key("h")
    _, _, zoom = looked_at.frame()
    assert looked_at.text("#magnification") == f"{20 * zoom:#.3g}\u00d7"  # 0.5 um per px: 20x
    bar_px = looked_at.page.evaluate("document.getElementById('scale-bar').getBoundingClientRect().width")
    assert looked_at.text("#scale-text") == f"{bar_px / zoom * 0.5:.0f} \u00b5m"
    looked_at.key("+", "+")
    assert looked_at.frame()[2] == pytest.approx(zoom * 1.5**2, rel=1e-3)
    looked_at.page.mouse.move(640, 400)
    looked_at.page.mouse.wheel(0, -300)
    looked_at.key("Shift")
    assert looked_at.frame()[2] > zoom * 1.5**2 * 1.1
    looked_at.key("h")
    assert looked_at.frame()[2] == pytest.approx(zoom, rel=1e-3)
    looked_at.page.mouse.move(*looked_at.on_screen([(200.5, 100.5)])[0])
    assert re.match(r"x 200\s+y 100 px\s+0\.10, 0\.05 mm", looked_at.text("#position"))
    left = looked_at.frame()[0]
    looked_at.key("ArrowRight")
    assert looked_at.frame()[0] < left - 50
    looked_at.key("h")


def test_the_whole_slide_is_in_view_and_no_panel_covers_it(looked_at):
    looked_at.key("h")
    (left, top), (right, bottom) = looked_at.on_screen([(0, 0), SHAPE[::-1]])
    side, tools = (looked_at.page.locator(name).bounding_box() for name in ("#side", "#tools"))
    assert left >= side["x"] + side["width"]
    assert bottom <= tools["y"]
    assert top >= 0
    assert right <= 1280


@pytest.mark.parametrize(("key", "style", "name"), [("1", "prediction", "Prediction"), ("2", "truth", "Truth"),
                                                    ("3", "missed", "Disagreement"), ("3", "false", "Disagreement"),
                                                    ("4", "corrected", "Corrections")])  # fmt: skip
def test_layers_are_switched_by_key_click_and_opacity(looked_at, key, style, name):
    looked_at.key("h")
    box = looked_at.page.get_by_role("switch", name=name)
    for other in "Prediction", "Truth", "Disagreement", "Corrections":
        looked_at.page.get_by_role("switch", name=other).set_checked(False)
    looked_at.settle()
    without = looked_at.colour_share(style)
    looked_at.key(key)
    assert box.is_checked()
    shown = looked_at.colour_share(style)
    assert shown > without + 1e-4
    slider = looked_at.page.get_by_label(f"Opacity of {name}")
    slider.fill("0")
    looked_at.settle()
    assert looked_at.colour_share(style) == pytest.approx(without, abs=1e-4)
    slider.fill("100")
    looked_at.key("0")  # only the slide
    assert looked_at.colour_share(style) == pytest.approx(without, abs=1e-4)
    looked_at.key("0")
    assert looked_at.colour_share(style) == pytest.approx(shown, abs=1e-3)
    box.click()
    looked_at.settle()
    assert looked_at.colour_share(style) == pytest.approx(without, abs=1e-4)


def test_next_disagreement(looked_at):
    """The two areas where the masks differ, by size; then the first again."""
    looked_at.key("h")
    assert looked_at.text("#regions-title") == "Disagreement"
    rows = looked_at.page.locator("#regions-list button")
    assert rows.count() == 2
    prediction, truth = masks()
    missed = ((truth == 1) & (prediction == 0)).sum() / 4
    size = f"{missed:,.0f} \u00b5m\u00b2".replace(",", "\u2009")
    assert rows.nth(0).inner_text().split("\n") == ["Missed tissue", size]
    places = (230, 330), (60, 300)
    for key, number in (("p", 1), ("n", 0), ("n", 1), ("n", 0), ("p", 1)):
        y, x = places[number]
        looked_at.key(key)
        assert rows.nth(number).get_attribute("aria-current") == "true"
        assert looked_at.centre() == pytest.approx((y, x), abs=4)
    rows.nth(0).click()
    looked_at.key("Shift")
    assert looked_at.centre() == pytest.approx((230, 330), abs=4)


def test_help_lists_the_keys(looked_at):
    looked_at.key("?")
    assert looked_at.page.locator("#help").is_visible()
    text = looked_at.text("#help")
    for word in ("brush", "eraser", "ignore", "undo", "save", "home", "full screen"):
        assert word in text
    looked_at.key("Escape")
    assert not looked_at.page.locator("#help").is_visible()


BRUSH = [(60, 275), (150, 285)]
POLYGON = [(270, 110), (315, 115), (310, 150), (275, 145)]
CUT = [(130, 110), (190, 115), (185, 160), (140, 150)]
IGNORE = [(230, 20), (290, 25)]


def correct(viewer, radius_px):
    """Correct with every tool; return which pixels have which label, and which of them that is sure of."""
    viewer.key("h", "b")
    _, _, zoom = viewer.frame()
    radius, margin = radius_px / zoom, STEP_PX / zoom
    expected, _ = masks()
    sure = np.ones(SHAPE, bool)

    def stroke(points, label):
        distance = distance_to_path(points, SHAPE)
        expected[distance <= radius] = label
        sure[np.abs(distance - radius) < margin] = False
        sure[distance < radius - margin] = True

    def outline(points, label):
        y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] + 0.5
        polygon = shapely.Polygon(points)
        expected[shapely.contains_xy(polygon, x, y)] = label
        near = shapely.distance(polygon.exterior, shapely.points(x, y)) < margin
        sure[shapely.contains_xy(polygon, x, y)] = True
        sure[near] = False

    viewer.drag(BRUSH)
    stroke(BRUSH, 1)
    viewer.key("e")
    viewer.drag([(100, 140), (120, 200)])
    viewer.key("Control+z")  # that was wrong
    viewer.key("g")
    viewer.click([*POLYGON, POLYGON[0]])  # a click at the first corner closes it
    outline(POLYGON, 1)
    viewer.settle()
    viewer.key("Shift+g")
    viewer.drag([*CUT, CUT[0]])  # in one go
    outline(CUT, 0)
    viewer.key("i")
    viewer.drag(IGNORE)
    stroke(IGNORE, 255)
    viewer.key("e")
    viewer.drag([(100, 80), (240, 80)])
    stroke([(100, 80), (240, 80)], 0)
    viewer.key("Control+z", "Control+y")  # it was right after all
    return expected, sure


@pytest.fixture(scope="module")
def corrected(browser, given, tmp_path_factory):
    """Correct with every tool; kill the viewer; save in the next one. Return the folder, the pixels, and sure ones."""
    folder = tmp_path_factory.mktemp("corrected")
    save = folder / "slide.geojson"
    with running(folder, *arguments(given, save)) as (process, address):
        viewer = Viewer(browser, address)
        assert viewer.page.locator("#undo").is_disabled()
        expected, sure = correct(viewer, radius_px=24)
        assert viewer.strokes() == 5
        assert viewer.page.locator("#save.unsaved").count() == 1
        assert viewer.complaints == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        viewer.page.wait_for_selector("#gone:visible", timeout=15_000)
        viewer.page.close()
    assert not save.exists()
    with running(folder, *arguments(given, save)) as (_, address):
        viewer = Viewer(browser, address)
        assert "5 strokes of last time are there again" in viewer.text("#toasts")
        assert viewer.page.get_by_role("switch", name="Corrections").is_checked()
        viewer.page.get_by_role("button", name="Begin anew").first.click()
        viewer.key("Shift")
        assert viewer.strokes() == 0
        viewer.key(*["Control+y"] * 5)
        assert viewer.strokes() == 5
        viewer.key("s")
        viewer.page.wait_for_function("() => document.getElementById('toasts').textContent.includes('Saved')")
        assert str(save) in viewer.text("#toasts")
        assert viewer.page.locator("#save.unsaved").count() == 0
        command = viewer.page.locator(".toast code.line").inner_text()
        assert viewer.complaints == []
        viewer.page.close()
    assert command.split() == ["gigaslide", "add", str(given.slide), "--annotations", str(folder)]
    return folder, expected, sure


def test_what_was_drawn_is_what_is_saved_also_after_a_kill(given, corrected):
    folder, expected, sure = corrected
    assert sure.mean() > 0.95
    found = open_labels(open_slide(given.slide), folder / "slide.geojson", NAMES).read(WHOLE)
    np.testing.assert_array_equal(found[sure], expected[sure])
    saved = features(folder / "slide.geojson")
    assert {value["properties"]["classification"]["name"] for value in saved} == {"Tissue", "Ignore"}
    assert all(value["properties"]["objectType"] == "annotation" for value in saved)
    assert all(shapely.geometry.shape(value["geometry"]).is_valid for value in saved)


def test_on_a_slide_without_mpp_and_masks_one_draws_from_nothing(browser, tmp_path):
    slide = write_slide(tmp_path / "plain.tif", np.full((*SHAPE, 3), 240, np.uint8), description="no resolution")
    with served(Options(slide, save=tmp_path / "plain.geojson")) as address:
        viewer = Viewer(browser, address)
        assert "pixel size unknown" in viewer.text("#facts")
        assert viewer.text("#scale-text").endswith("px")
        assert viewer.text("#magnification").endswith("%")
        assert not viewer.page.locator("#regions").is_visible()
        viewer.key("h", "b")
        viewer.drag(BRUSH)
        viewer.key("s", "n")
        viewer.page.wait_for_selector(".toast")
        assert viewer.complaints == []
        viewer.page.close()
    assert open_labels(open_slide(slide), tmp_path / "plain.geojson", NAMES).read(WHOLE)[BRUSH[0][1], BRUSH[0][0]] == 1


@pytest.mark.slow
def test_the_loop_closes(corrected, given, tmp_path, monkeypatch):
    """What was corrected and saved in the browser: add, prepare, train; the network is trained on those pixels.

    With the real commands, but that DVC is left out: tests/stages/test_add.py has it.
    """
    project, more = tmp_path / "project", tmp_path / "more"
    for folder in (project / ".dvc", more):
        folder.mkdir(parents=True)
    rgb = np.full((*SHAPE, 3), 230, np.uint8)
    rgb[masks()[1] == 1] = (200, 120, 170)
    write_slide(more / "other.tiff", rgb)
    write_mask(more / "other-mask.tif", masks()[1])
    values = yaml.safe_load(PARAMS.read_text())
    values["network"].update(kernel_size=5, stride=2)
    values["train"].update(epochs=1, warmup_steps=1)
    values["slides"]["dir"] = "data/slides"
    values["prepare"]["workers"] = 1
    (project / "params.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.chdir(project)
    monkeypatch.setattr(versioning, "add", lambda folder: False)
    add = ["add", str(given.slide), "--annotations", str(corrected[0]), "--split", "train"]
    for words in (add, ["add", str(more), "--split", "validation"], ["prepare"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    (store,) = open_split(Path("data/stores"), "train")
    saved = open_labels(open_slide(given.slide), corrected[0] / "slide.geojson", NAMES).read(WHOLE)
    np.testing.assert_array_equal(store.read_mask(WHOLE), saved)
    done = gigaslide(project, "train")
    assert done.returncode == 0, done.stdout + done.stderr
    assert 0 <= json.loads(Path("results/train/summary.json").read_text())["validation_dice"] <= 1
    assert Path("models/model.keras").exists()
