"""The server: what it serves, and to whom it does not."""

import json
from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

from gigaslide.errors import SlideError
from gigaslide.geometry import Window
from gigaslide.masks.mask_tiff import write_mask as write_predicted
from gigaslide.slides.labels import open_labels
from gigaslide.viewer import server
from tests.slides.files import damage_tile
from tests.viewer.sessions import MPP, SHAPE, features, masks, opened, write_files

PORT, KEY = 45678, "the-key"
HOME = f"http://127.0.0.1:{PORT}"
WRITES = {"Origin": HOME, "Content-Type": "application/json"}
BRUSH = {"kind": "brush", "label": "tissue", "points": [[200, 280], [260, 280]], "radius_px": 10}
POSTS = ["strokes", "undo", "redo", "clear", "save"]
TILE = "/tiles/slide/0/0/0_0.jpeg"


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("slide"))


@pytest.fixture
def session(options, tmp_path):
    session = opened(replace(options, save=tmp_path / "slide.geojson"))
    yield session
    session.close()


@pytest.fixture
def app(session):
    return server.build(session, PORT, KEY)


def client_of(app, base=HOME, **headers):
    return TestClient(app, base_url=base, headers=headers, follow_redirects=False)


@pytest.fixture
def client(app):
    client = client_of(app)
    client.get(f"/?key={KEY}")
    return client


def post(client, name, value=None, **headers):
    return client.post(f"/api/{name}", content=json.dumps(value), headers=WRITES | headers)


# Who may ask


def test_the_key_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get(app):
    client = client_of(app)
    answer = client.get(f"/?key={KEY}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("path", ["/", "/?key=", "/?key=wrong", "/?key=%00%ff", "/static/main.js", "/api/slide", TILE])
def test_nothing_is_served_without_the_key(app, path):
    assert client_of(app).get(path).status_code == 403
    for cookie in ("gigaslide-45678=wrong", f"gigaslide-1={KEY}", f"{KEY}", "gigaslide-45678=\u00e9"):
        assert client_of(app, Cookie=cookie.encode()).get(path).status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}",
     f"0.0.0.0:{PORT}", "", f"127.0.0.1:{PORT}@evil.example", f"192.168.0.1:{PORT}"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", f"/?key={KEY}", "/api/slide", TILE])
def test_another_host_name_is_refused(client, host, path):
    """A page whose name was made to point to 127.0.0.1 (DNS rebinding)."""
    assert client.get(path, headers={"Host": host}).status_code == 421


def test_both_local_names_are_served(app):
    client = client_of(app, f"http://localhost:{PORT}")
    assert client.get(f"/?key={KEY}").status_code == 303
    assert client.get("/api/slide").status_code == 200


@pytest.mark.parametrize("name", POSTS)
@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:1",
                                    f"https://127.0.0.1:{PORT}"])  # fmt: skip
def test_only_this_server_s_page_changes_something(client, session, name, origin):
    headers = {"Content-Type": "application/json"} | ({"Origin": origin} if origin else {})
    assert client.post(f"/api/{name}", content=json.dumps(BRUSH), headers=headers).status_code == 403
    assert session.state()["version"] == 0
    assert not session.given.save.exists()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_changes_nothing(client, session, kind):
    assert post(client, "strokes", BRUSH, **{"Content-Type": kind}).status_code == 415
    assert session.state()["version"] == 0


@pytest.mark.parametrize("name", POSTS)
def test_a_link_changes_nothing(client, session, name):
    assert client.get(f"/api/{name}").status_code == 405
    assert session.state()["version"] == 0


def test_there_is_no_cors(client):
    for answer in (
        client.get("/api/slide", headers={"Origin": "http://evil.example"}),
        client.options(
            "/api/strokes", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        ),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_has_the_policy(client, app):
    answers = [client.get(path) for path in ("/", "/static/main.js", "/api/slide", TILE, "/nothing")]
    answers += [client_of(app).get("/"), client.get("/", headers={"Host": "evil.example"})]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.split(";")[0] == "default-src 'self'"
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


# What is served


@pytest.mark.parametrize(
    "name", ["index.html", "main.js", "viewer.css", "openseadragon/openseadragon.min.js", "icon.svg"]
)
def test_the_files_of_the_page(client, name):
    answer = client.get(f"/static/{name}")
    assert answer.status_code == 200
    assert len(answer.content) > 100


@pytest.mark.parametrize(
    "path",
    ["/static/", "/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py",
     "/static/openseadragon/..%2f..%2fserver.py", "/static//etc/passwd", "/static/%2fetc%2fpasswd",
     "/static/main.js%00",
     "/static/openseadragon/LICENSE.txt", "/static/....//server.py", "/static/..\\server.py", "/etc/passwd",
     "/tiles/..%2f..%2f/0/0/0_0.png", "/tiles/slide/0/0/..%2f..%2f0_0.jpeg", "/api/../static/main.py", "/slide.tiff"],
)  # fmt: skip
def test_no_other_file_is_served(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert len(answer.content) < 100


def test_a_file_that_is_put_beside_the_page_s_is_not_served(client, session):
    """The files are from a list, not from what lies there."""
    assert set(server._static_files()) == set(server._FILES)
    assert client.get("/static/openseadragon/README.md").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["slide/0/-1/0_0.jpeg", "slide/0/99/0_0.jpeg", "slide/0/0/1_0.jpeg", "slide/0/0/0_1.jpeg", "slide/0/0/0_0.png",
     "slide/0/a/0_0.jpeg", "slide/0/0/0x0_0.jpeg", "prediction/0/0/0_0.jpeg", "nothing/0/0/0_0.png",
     f"slide/0/{'9' * 5000}/0_0.jpeg", f"slide/0/0/{'9' * 100}_0.jpeg", "slide/0/0/\u0663_0.jpeg"],
)  # fmt: skip
def test_tiles_that_are_not_there(client, path):
    assert client.get(f"/tiles/{path}").status_code == 404


@pytest.mark.parametrize("path", [TILE, "/tiles/prediction/0/9/0_0.png", "/static/main.js", "/"])
def test_the_browser_asks_whether_what_it_has_is_still_right(client, path):
    first = client.get(path)
    assert first.status_code == 200
    assert "no-cache" in first.headers["cache-control"]
    assert "public" not in first.headers["cache-control"]
    again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""


def test_what_the_page_is_told(client):
    facts = client.get("/api/slide").json()
    assert facts["name"] == "slide.tiff"
    assert facts["mpp"] == [MPP, MPP]
    assert facts["power"] == 20
    assert (facts["slide"]["height"], facts["slide"]["width"]) == SHAPE
    assert [layer["name"] for layer in facts["layers"]] == ["prediction", "truth", "disagreement", "corrections"]


def test_regions_by_size_in_um2(client):
    prediction, truth = masks()
    found = client.get("/api/regions").json()
    missed, false = (truth == 1) & (prediction == 0), (prediction == 1) & (truth == 0)
    assert [(region["kind"], region["um2"]) for region in found["regions"]] == [
        ("missed", pytest.approx(missed.sum() * MPP**2)),
        ("false", pytest.approx(false.sum() * MPP**2)),
    ]
    assert found["more"] == 0


def test_without_a_truth_the_pieces_of_the_prediction(options, tmp_path):
    session = opened(replace(options, truth=None, save=tmp_path / "slide.geojson"))
    assert [region.kind for region in session.regions.largest] == ["prediction", "prediction"]
    assert session.layer_names == ["prediction", "corrections"]
    session.close()


def test_a_slide_without_masks_can_be_annotated(options, tmp_path):
    session = opened(replace(options, mask=None, truth=None, save=tmp_path / "slide.geojson"))
    session.draw(BRUSH)
    session.save()
    assert len(features(tmp_path / "slide.geojson")) == 1
    assert session.regions.largest == ()
    session.close()


# Corrections


def test_draw_undo_redo_clear_save(client, session):
    tile = "/tiles/corrections/{}/9/0_1.png"
    before = client.get(tile.format(0))
    assert before.headers["cache-control"] == "no-store"
    state = post(client, "strokes", BRUSH).json()["state"]
    assert (state["version"], state["strokes"], state["is_saved"]) == (1, 1, False)
    drawn = client.get(tile.format(1)).content
    assert drawn != before.content
    assert post(client, "undo").json()["state"]["can_redo"]
    assert client.get(tile.format(2)).content == before.content
    post(client, "redo")
    assert client.get(tile.format(3)).content == drawn
    post(client, "clear")
    assert client.get(tile.format(4)).content == before.content
    post(client, "redo")
    saved = post(client, "save").json()
    assert saved["state"]["is_saved"]
    assert saved["result"]["path"] == str(session.given.save)


def test_what_is_saved_is_the_mask_with_the_strokes(client, session):
    square = [[300, 20], [400, 20], [400, 100], [300, 100]]
    post(client, "strokes", {"kind": "polygon", "label": "glass", "points": square})
    square = [[20, 250], [60, 250], [60, 290], [20, 290]]
    post(client, "strokes", {"kind": "polygon", "label": "ignore", "points": square})
    post(client, "save")
    expected, _ = masks()
    expected[20:100, 300:400] = 0
    expected[250:290, 20:60] = 255
    reader = session.given.reader
    found = open_labels(reader, session.given.save, session.given.labels).read(Window.of(0, 0, *SHAPE))
    np.testing.assert_array_equal(found, expected)


def test_strokes_are_there_again_in_the_next_viewer(client, session, options):
    post(client, "strokes", BRUSH)
    again = opened(replace(options, save=session.given.save))
    assert again.state()["restored"] == 1
    assert again.state()["strokes"] == 1
    again.close()


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"kind": "brush"}', "[" * 100_000, '"\\ud800"', "1e999"])
def test_a_stroke_that_is_none_is_refused_in_words(client, session, body):
    answer = client.post("/api/strokes", content=body, headers=WRITES)
    assert answer.status_code == 400
    assert "expected" in answer.json()["error"] or "should" in answer.json()["error"]
    assert session.state()["version"] == 0


def test_a_stroke_of_no_end_is_refused(client, session):
    answer = client.post("/api/strokes", content=b" " * (5 << 20), headers=WRITES)
    assert answer.status_code == 413
    assert session.state()["version"] == 0


def test_where_nothing_can_be_written_the_page_hears_why(client, session, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gigaslide.viewer.session.write_corrected", full)
    answer = post(client, "save")
    assert answer.status_code == 400
    assert "No space left" in answer.json()["error"]
    monkeypatch.setattr("gigaslide.viewer.journal.os.fsync", full)
    answer = post(client, "strokes", BRUSH)
    assert answer.status_code == 400
    assert "make room" in answer.json()["error"]
    assert session.state()["strokes"] == 0


def test_a_mask_with_a_damaged_tile_is_said_on_the_page(options, tmp_path):
    """A predicted mask is not gone through before the page opens."""
    mask = tmp_path / "mask.tif"
    write_predicted(mask, [masks()[0]], SHAPE, (0.5, 0.5))
    damage_tile(mask, 0)
    session = opened(replace(options, mask=mask, save=tmp_path / "slide.geojson"))
    state = session.state()
    assert "mask.tif is damaged in its tile" in state["problem"]
    assert state["masks_share"] == 1
    assert session.tile("prediction", 0, 0, 0) is None
    assert session.tile("slide", 0, 0, 0) is not None
    session.close()


def test_a_mask_that_breaks_while_it_is_looked_at(options, tmp_path, session, monkeypatch):
    def broken(*_):
        raise SlideError("the mask is gone")

    monkeypatch.setattr(session.layers, "read", broken)
    assert session.tile("prediction", 0, 0, 0) is None
    assert session.state()["problem"] == "the mask is gone"


def test_begin_anew_can_be_taken_back(client):
    for _ in range(3):
        post(client, "strokes", BRUSH)
    state = post(client, "clear").json()["state"]
    assert (state["strokes"], state["can_undo"]) == (0, True)
    assert post(client, "undo").json()["state"]["strokes"] == 3
