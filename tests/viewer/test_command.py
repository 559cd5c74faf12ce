import http.client
import signal
import socket
import urllib.parse

import pytest
from filelock import FileLock

from gigaslide.errors import SlideError, UsageError
from gigaslide.viewer import command
from gigaslide.viewer.command import Options, open_session, run, save_path
from gigaslide.viewer.session import autosave_path
from tests.viewer.running import running
from tests.viewer.sessions import write_files


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("slide"))


def arguments(options, save):
    return [str(options.slide), "--mask", str(options.mask), "--truth", str(options.truth), "--save", str(save)]


def test_it_serves_this_machine_only_and_ends_quietly(given, tmp_path):
    with running(tmp_path, *arguments(given, tmp_path / "slide.geojson")) as (process, address):
        parts = urllib.parse.urlsplit(address)
        assert parts.hostname == "127.0.0.1"
        connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
        connection.request("GET", f"/?{parts.query}")
        answer = connection.getresponse()
        answer.read()
        cookie = answer.headers["set-cookie"].split(";")[0]
        assert answer.status == 303
        # As they are, which no browser would send.
        for path in (
            "/static/../server.py",
            "/static/../../../../../../../etc/passwd",
            "/../static/main.js",
            "//etc/passwd",
        ):
            connection.request("GET", path, headers={"Cookie": cookie})
            answer = connection.getresponse()
            assert (answer.status, len(answer.read()) < 100) == (404, True)
        # Two names at once, of which a proxy might believe the other.
        connection.putrequest("GET", "/api/slide", skip_host=True)
        for name in (f"127.0.0.1:{parts.port}", "evil.example"):
            connection.putheader("Host", name)
        connection.putheader("Cookie", cookie)
        connection.endheaders()
        assert connection.getresponse().status in (400, 421)
        assert addresses_of(process.pid) in ({"127.0.0.1"}, None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert "Traceback" not in out
    assert sorted(path.name for path in tmp_path.iterdir()) == []


def addresses_of(pid):
    """Return where a process listens, None where the system does not say."""
    import psutil

    try:
        found = psutil.Process(pid).net_connections()
    except psutil.AccessDenied:
        return None
    return {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}


def test_the_page_is_opened_once_it_is_served(given, tmp_path, monkeypatch):
    asked = []

    def open_page(address):
        parts = urllib.parse.urlsplit(address)
        connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
        connection.request("GET", f"/?{parts.query}")
        asked.append(connection.getresponse().status)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command.webbrowser, "open", open_page)
    run(Options(given.slide, given.mask, save=tmp_path / "slide.geojson"))
    assert asked == [303]


def test_a_port_that_is_taken(given, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of this machine is not free"):
            run(Options(given.slide, given.mask, save=tmp_path / "slide.geojson", port=port, browser=False))
    assert list(tmp_path.iterdir()) == []


def test_one_viewer_at_a_time_corrects_a_mask(given, tmp_path):
    save = tmp_path / "slide.geojson"
    with (
        FileLock(autosave_path(save).with_suffix(".lock")),
        pytest.raises(UsageError, match=r"another `gigaslide view` is correcting .*slide\.geojson"),
    ):
        run(Options(given.slide, given.mask, save=save, browser=False))


def test_where_the_corrected_mask_goes(tmp_path):
    slide, truth = tmp_path / "in/s1.svs", tmp_path / "in/s1.geojson"
    mask = tmp_path / "out/s1.tif"
    mask.parent.mkdir()
    assert save_path(Options(slide)) == tmp_path / "in/s1.geojson"
    assert save_path(Options(slide, mask, truth)) == tmp_path / "out/s1.geojson"
    # Never over what the viewer was given, or over what somebody else wrote.
    assert save_path(Options(slide, None, truth)) == tmp_path / "in/s1-corrected.geojson"
    assert save_path(Options(slide, truth)) == tmp_path / "in/s1-corrected.geojson"
    (tmp_path / "out/s1.geojson").write_text("mine")
    assert save_path(Options(slide, mask)) == tmp_path / "out/s1-corrected.geojson"
    # What a viewer saved, it saves again.
    autosave_path(tmp_path / "out/s1.geojson").write_text("")
    assert save_path(Options(slide, mask)) == tmp_path / "out/s1.geojson"
    assert save_path(Options(slide, mask, save=tmp_path / "x.GeoJSON")) == tmp_path / "x.GeoJSON"


@pytest.mark.parametrize("name", ["x.tif", "x", "slide.tiff"])
def test_a_save_that_is_no_geojson(given, tmp_path, name):
    with pytest.raises(UsageError, match=r"--save should name a \.geojson file"):
        run(Options(given.slide, save=tmp_path / name, browser=False))


def test_a_folder_that_is_not_there(given, tmp_path):
    with pytest.raises(UsageError, match="is not there: make it"):
        run(Options(given.slide, save=tmp_path / "no/x.geojson", browser=False))
    (tmp_path / "x.geojson").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        run(Options(given.slide, save=tmp_path / "x.geojson", browser=False))


def test_files_that_cannot_be_used_are_said_before_a_page_opens(given, tmp_path):
    (tmp_path / "text.svs").write_text("no slide")
    with pytest.raises(SlideError, match=r"text\.svs"):
        run(Options(tmp_path / "text.svs", browser=False))
    with pytest.raises(SlideError, match=r"nothing\.tif"):
        run(Options(given.slide, tmp_path / "nothing.tif", save=tmp_path / "x.geojson", browser=False))
    assert [path.name for path in tmp_path.iterdir()] == ["text.svs"]


def test_mpp_of_the_user(given, tmp_path):
    session = open_session(Options(given.slide, given.mask, mpp_um_per_px=0.25, save=tmp_path / "x.geojson"))
    assert session.given.reader.mpp_um_per_px == (0.25, 0.25)


def test_the_projects_class_names_count(given, tmp_path, monkeypatch):
    from tests.stages.project import make_project

    monkeypatch.chdir(tmp_path)
    assert open_session(Options(given.slide, save=tmp_path / "x.geojson")).given.labels.tissue_classes == ["Tissue"]
    make_project(tmp_path, labels={"tissue_classes": ["Gewebe"]})
    assert open_session(Options(given.slide, save=tmp_path / "x.geojson")).given.labels.tissue_classes == ["Gewebe"]
