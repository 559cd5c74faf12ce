"""What is kept of a slide that was handed on, and what makes it be handed on again."""

import numpy as np
import pytest

from gigaslide.exports import tools
from gigaslide.exports.request import PatchRequest
from tests.exports.slides import export, slide
from tests.slides.files import HALF_UM

REQUEST = PatchRequest(64)


@pytest.fixture
def made(tmp_path):
    (tmp_path / "thumbnail.jpg").write_bytes(b"a picture")
    path = slide(tmp_path / "one.tif", [(256, 320)], **HALF_UM)
    return export(path, np.ones((256, 320), bool), REQUEST)


def names(out):
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("tool", tools.TOOLS)
def test_a_state_is_that_of_its_files(tmp_path, made, tool):
    out = tmp_path / "out"
    state = tools.write(tool, made, tmp_path / "thumbnail.jpg", out)
    assert state["patches"] == 20 - (8 if tool == "histolab" else 0)  # those at the slide's end
    assert set(state["files_bytes"]) == names(out)
    assert all(name.startswith(f"exports/{tool}/") for name in names(out))
    assert tools.is_current(state, REQUEST, out)
    assert not tools.is_current(None, REQUEST, out)
    assert not tools.is_current(state, PatchRequest(64, min_tissue=0.5), out)
    for name in names(out):
        content = (out / name).read_bytes()
        (out / name).write_bytes(content[:-1])
        assert not tools.is_current(state, REQUEST, out)
        (out / name).write_bytes(content)
    assert tools.is_current(state, REQUEST, out)


@pytest.mark.parametrize("tool", tools.TOOLS)
def test_patches_of_another_size_take_their_place(tmp_path, made, tool):
    out, other = tmp_path / "out", export(made.reader.path, np.ones((256, 320), bool), PatchRequest(32))
    tools.write(tool, made, tmp_path / "thumbnail.jpg", out)
    again = tools.write(tool, other, tmp_path / "thumbnail.jpg", out)
    assert names(out) == set(again["files_bytes"])
    tools.remove([tool], made.reader.path, out)
    assert names(out) == set()


def test_a_slide_that_a_tool_does_not_take_leaves_its_reason(tmp_path):
    path = slide(tmp_path / "one.tif", [(256, 320)], resolution=(1, 1), resolutionunit="NONE")
    made = export(path, np.ones((256, 320), bool), REQUEST)
    state = tools.write("trident", made, tmp_path / "thumbnail.jpg", tmp_path / "out")
    assert "TRIDENT has to know" in state["error"]
    assert state["patches"] == 0
    assert not tools.is_current(state, REQUEST, tmp_path / "out")
    assert names(tmp_path / "out") == set()


def test_a_name_with_wildcards_is_only_itself(tmp_path):
    folder = tmp_path / "exports" / "trident" / "20x_64px_0px_overlap" / "patches"
    folder.mkdir(parents=True)
    (folder / "[ab]_patches.h5").touch()
    (folder / "a_patches.h5").touch()
    tools.remove(tools.TOOLS, tmp_path / "[ab].svs", tmp_path)
    assert [path.name for path in folder.iterdir()] == ["a_patches.h5"]
