"""`gigaslide view`: open the files, serve the page to this machine's browser, end quietly at Ctrl-C."""

import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout

from gigaslide import config
from gigaslide.config import Labels
from gigaslide.console import console
from gigaslide.errors import UsageError
from gigaslide.slides.labels import LabelSource, open_labels
from gigaslide.slides.reader import SlideReader, open_slide
from gigaslide.viewer import server
from gigaslide.viewer.guard import KEY, new_key
from gigaslide.viewer.session import Given, Session, autosave_path

_HOST = "127.0.0.1"
_GEOJSON = ".geojson"


@dataclass(frozen=True)
class Options:
    """What was asked for; port 0 is any free one."""

    slide: Path
    mask: Path | None = None
    truth: Path | None = None
    save: Path | None = None
    mpp_um_per_px: float | None = None
    port: int = 0
    browser: bool = True


def _labels_settings() -> Labels:
    """Return `labels:` of the project that this is typed in, or else the names that QuPath users give."""
    if config.PARAMS_FILE.exists():
        return config.load().labels
    return Labels(tissue_classes=["Tissue"], ignore_classes=["Ignore"], without_annotation="error")


def _opened(path: Path | None, reader: SlideReader, labels: Labels) -> tuple[Path, LabelSource] | None:
    return None if path is None else (path, open_labels(reader, path, labels))


def save_path(options: Options) -> Path:
    """Return where the corrected mask goes: by default beside the mask, else the slide, under the slide's name.

    A file that is there and that no viewer has saved is left alone: then the name ends in -corrected, which `gigaslide
    add` takes for the same slide.

    Raises:
        UsageError: --save is no GeoJSON, or names the slide.
    """
    if options.save is not None:
        if options.save.suffix.lower() != _GEOJSON:
            raise UsageError(f"--save should name a {_GEOJSON} file; received {options.save}")
        if options.save.is_dir():
            raise UsageError(f"--save should name a file; {options.save} is a folder")
        return options.save
    folder = (options.mask or options.slide).parent
    path = folder / f"{options.slide.stem}{_GEOJSON}"
    given = [file.resolve() for file in (options.mask, options.truth) if file is not None]
    if path.resolve() in given or (path.exists() and not autosave_path(path).exists()):
        return path.with_name(f"{options.slide.stem}-corrected{_GEOJSON}")
    return path


def open_session(options: Options) -> Session:
    """Open slide and masks.

    Raises:
        UsageError: an option is wrong.
        SlideError: a file cannot be used; the message says which and why.
    """
    reader = open_slide(options.slide, options.mpp_um_per_px)
    labels = _labels_settings()
    mask, truth = (_opened(path, reader, labels) for path in (options.mask, options.truth))
    return Session(Given(reader, mask, truth, save_path(options), labels))


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen()  # from here on browsers are answered, or wait
    except OSError as error:
        listening.close()
        raise UsageError(
            f"port {port} of this machine is not free ({error.strerror}): give another --port, or none"
        ) from None
    return listening


def _when_started(serving: uvicorn.Server, then: Callable[[], object]) -> None:
    def wait() -> None:
        while not serving.started:
            if serving.should_exit:
                return
            time.sleep(0.02)
        then()

    threading.Thread(target=wait, daemon=True).start()


def run(options: Options) -> None:
    """Serve until Ctrl-C.

    Raises:
        UsageError: an option is wrong, or another viewer is correcting the same mask.
        SlideError: a file cannot be used.
    """
    target = save_path(options)
    if not target.parent.is_dir():
        raise UsageError(f"the folder {target.parent} for the corrected mask is not there: make it, or give --save")
    lock = autosave_path(target).with_suffix(".lock")
    try:
        with FileLock(lock, timeout=0):
            try:
                _serve(replace(options, save=target))
            finally:
                lock.unlink(missing_ok=True)  # while it is held: nobody else has it
    except Timeout:
        raise UsageError(f"another `gigaslide view` is correcting {target}: close it, or give --save") from None


def _serve(options: Options) -> None:
    session = open_session(options)
    key = new_key()
    with _listen(options.port) as listening:
        port = listening.getsockname()[1]
        address = f"http://{_HOST}:{port}/?{KEY}={key}"
        app = server.build(session, port, key)
        serving = uvicorn.Server(
            uvicorn.Config(app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=1)
        )
        console.print(f"{options.slide.name}: {address}\nCtrl-C ends it", markup=False)
        if options.browser:
            _when_started(serving, lambda: webbrowser.open(address))
        session.start()
        try:
            serving.run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # uvicorn has ended by then, and hands the signal on
        finally:
            session.close()
    state = session.state()
    if not state["is_saved"]:
        console.print(
            f"{state['strokes']} strokes are not in {session.given.save} yet: the next `gigaslide view` has them",
            markup=False,
        )
