// What the keys do; the panel of `?` in index.html lists them.

const PAN_SHARE = 0.15; // of the view

export function connectKeys({ view, layers, drawing, regions, save, help }) {
  const pan = (x, y) => () => view.panBy(x * PAN_SHARE, y * PAN_SHARE);
  const plain = {
    "+": () => view.zoomBy(1.5),
    "=": () => view.zoomBy(1.5),
    "-": () => view.zoomBy(1 / 1.5),
    _: () => view.zoomBy(1 / 1.5),
    ArrowLeft: pan(-1, 0),
    ArrowRight: pan(1, 0),
    ArrowUp: pan(0, -1),
    ArrowDown: pan(0, 1),
    h: () => view.home(),
    f: () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen()),
    1: () => layers.toggle("prediction"),
    2: () => layers.toggle("truth"),
    3: () => layers.toggle("disagreement"),
    4: () => layers.toggle("corrections"),
    0: () => layers.peek(),
    n: () => regions.next(),
    p: () => regions.previous(),
    b: () => drawing.choose("brush"),
    e: () => drawing.choose("eraser"),
    i: () => drawing.choose("ignore"),
    g: () => drawing.choose("polygon"),
    G: () => drawing.choose("cut"),
    v: () => drawing.choose(""),
    Escape: () => (drawing.stroke ? drawing.cancel() : drawing.choose("")),
    Enter: () => drawing.close(),
    Backspace: () => drawing.dropCorner(),
    "[": () => drawing.resize(drawing.radius / 1.25),
    "]": () => drawing.resize(drawing.radius * 1.25),
    s: save,
    "?": help,
  };
  const withControl = { z: () => drawing.undo(), y: () => drawing.redo(), Z: () => drawing.redo(), s: save };

  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]") || event.altKey) return;
    if (event.key === " ") {
      if (event.target.closest?.("button, input")) return;
      event.preventDefault();
      if (!event.repeat) drawing.holdSpace(true);
      return;
    }
    // A slider keeps its arrows, a button its Enter.
    if (event.target.type === "range" && event.key.startsWith("Arrow")) return;
    if (event.target.closest?.("button") && event.key === "Enter") return;
    const keys = event.ctrlKey || event.metaKey ? withControl : plain;
    const capital = event.key.toUpperCase();
    // Shift makes a letter large, not the caps lock.
    const act = (event.shiftKey && keys[capital]) || keys[event.key.toLowerCase()] || keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("keyup", (event) => event.key === " " && drawing.holdSpace(false));
  window.addEventListener("blur", () => drawing.holdSpace(false));
}
