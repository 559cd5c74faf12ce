// Brush, eraser and outlines: drawn on a canvas over the slide, sent to the server when the stroke ends.
// Points are (x, y) in px of level 0.

import { post } from "./api.js";

const YELLOW = "255, 214, 10";
const LOOKS = {
  tissue: { fill: `rgba(${YELLOW}, .45)`, line: `rgb(${YELLOW})` },
  glass: { fill: "rgba(255, 255, 255, .62)", line: "#fff" },
  ignore: { fill: "rgba(90, 98, 112, .5)", line: "#5a6270" },
};
const TOOLS = {
  brush: { kind: "brush", label: "tissue" },
  eraser: { kind: "brush", label: "glass" },
  ignore: { kind: "brush", label: "ignore" },
  polygon: { kind: "polygon", label: "tissue" },
  cut: { kind: "polygon", label: "glass" },
};
const STEP_PX = 2; // of the screen, between two points of a stroke
const CLOSING_PX = 10; // of the screen: a click that near to the first corner closes an outline
const RADIUS_PX = [3, 150];

export class Drawing {
  constructor(viewer, view, layers, on) {
    Object.assign(this, { viewer, view, layers, on });
    this.canvas = document.getElementById("drawing");
    this.tool = "";
    this.radius = 24; // px of the screen
    this.stroke = null; // what is being drawn
    this.pending = []; // drawn, and not in the tiles yet
    this.pointer = null; // px of the screen
    this.flash = null;
    this.holdsSpace = false;
    this.sending = Promise.resolve();
    this.unsent = 0;
    this.connect();
  }

  get moves() {
    return !this.tool || this.holdsSpace;
  }

  choose(tool) {
    this.cancel();
    this.tool = tool;
    if (tool) this.layers.show("corrections", true);
    document.body.classList.toggle("draws", Boolean(tool));
    document.body.classList.toggle("brushes", TOOLS[tool]?.kind === "brush");
    this.viewer.gestureSettingsMouse.dblClickToZoom = !tool;
    this.on.tool(tool);
    this.paint();
  }

  resize(radius) {
    this.radius = Math.min(RADIUS_PX[1], Math.max(RADIUS_PX[0], radius));
    this.on.radius(this.radius, this.radius / this.view.zoom());
    this.paint();
  }

  holdSpace(held) {
    this.holdsSpace = held;
    document.body.classList.toggle("grabs", held);
    this.paint();
  }

  connect() {
    const handle = (name, act) =>
      this.viewer.addHandler(name, (event) => {
        if (this.moves) return;
        event.preventDefaultAction = true;
        act(this.view.toSlide(event.position), event);
      });
    handle("canvas-press", (point) => this.press(point));
    handle("canvas-drag", (point) => this.drag(point));
    // These would pan and zoom.
    handle("canvas-drag-end", () => {});
    handle("canvas-release", (point) => this.release(point));
    handle("canvas-click", () => {});
    handle("canvas-double-click", () => this.close());
    this.viewer.addHandler("update-viewport", () => this.paint());
    this.viewer.addHandler("resize", () => this.paint());
    this.viewer.container.addEventListener("pointermove", (event) => {
      this.pointer = { x: event.clientX, y: event.clientY };
      if (this.tool) this.paint();
    });
    this.viewer.container.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.paint();
    });
  }

  press(point) {
    const { kind, label } = TOOLS[this.tool];
    this.dragged = false;
    if (kind === "brush") {
      this.stroke = { kind, label, points: [point], radius: this.radius / this.view.zoom() };
    } else if (!this.stroke) {
      this.stroke = { kind, label, points: [point], radius: 0 };
    } else if (this.stroke.points.length >= 3 && this.distance(point, this.stroke.points[0]) < CLOSING_PX) {
      this.close();
      return;
    } else {
      this.extend(point);
    }
    this.paint();
  }

  drag(point) {
    if (!this.stroke) return;
    this.dragged = this.extend(point) || this.dragged;
    this.paint();
  }

  release(point) {
    if (!this.stroke) return;
    if (this.stroke.kind === "brush") {
      this.extend(point);
      this.send();
    } else if (this.dragged && this.stroke.points.length >= 3) {
      this.close(); // drawn in one go
    }
  }

  distance(one, other) {
    return Math.hypot(one[0] - other[0], one[1] - other[1]) * this.view.zoom();
  }

  extend(point) {
    if (this.distance(point, this.stroke.points.at(-1)) < STEP_PX) return false;
    this.stroke.points.push(point);
    return true;
  }

  // Ends an outline; one of fewer than three corners is nothing.
  close() {
    if (this.stroke?.kind !== "polygon") return;
    if (this.stroke.points.length >= 3) this.send();
    else this.cancel();
  }

  cancel() {
    this.stroke = null;
    this.paint();
  }

  // Takes the last corner of an outline back; true if there was one.
  dropCorner() {
    if (this.stroke?.kind !== "polygon") return false;
    this.stroke.points.pop();
    if (!this.stroke.points.length) this.stroke = null;
    this.paint();
    return true;
  }

  send() {
    const stroke = this.stroke;
    this.stroke = null;
    this.pending.push(stroke);
    this.paint();
    const { kind, label, points, radius } = stroke;
    this.change(() => post("strokes", { kind, label, points, radius_px: radius }), stroke);
  }

  undo() {
    if (!this.dropCorner()) this.change(() => post("undo"));
  }

  redo() {
    this.change(() => post("redo"));
  }

  // Changes go to the server one after the other, in the order they were made.
  change(ask, stroke = null) {
    this.on.busy(++this.unsent);
    this.sending = this.sending.then(async () => {
      try {
        const { state } = await ask();
        if (stroke) stroke.version = state.version;
        this.on.state(state);
        this.layers.correct(state.version, () => this.drop((held) => held.version <= state.version));
      } catch (error) {
        this.drop((held) => held === stroke);
        this.on.problem(error.message);
      }
      this.on.busy(--this.unsent);
    });
    return this.sending;
  }

  drop(done) {
    this.pending = this.pending.filter((stroke) => !done(stroke));
    this.paint();
  }

  // Shows where a region is, for a moment.
  point(box) {
    this.flash = { box, until: performance.now() + 1600 };
    this.paint();
  }

  paint() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.paintNow();
    });
  }

  paintNow() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const { origin, zoom } = this.view.frame();
    if (!(zoom > 0)) return;
    for (const stroke of [...this.pending, this.stroke]) {
      if (stroke) this.paintStroke(context, stroke, origin, zoom, stroke === this.stroke);
    }
    if (TOOLS[this.tool]?.kind === "brush" && this.pointer && !this.moves) this.paintCursor(context);
    this.paintFlash(context, origin, zoom);
  }

  paintStroke(context, stroke, origin, zoom, isOpen) {
    const look = LOOKS[stroke.label];
    const corners = stroke.points.map(([x, y]) => [origin.x + x * zoom, origin.y + y * zoom]);
    context.beginPath();
    corners.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.lineJoin = context.lineCap = "round";
    if (stroke.kind === "brush") {
      if (corners.length === 1) context.lineTo(corners[0][0] + 0.01, corners[0][1]);
      context.lineWidth = 2 * stroke.radius * zoom;
      context.strokeStyle = look.fill;
      context.stroke();
      return;
    }
    if (isOpen && this.pointer && !this.moves) context.lineTo(this.pointer.x, this.pointer.y);
    if (!isOpen) context.closePath();
    context.fillStyle = look.fill;
    context.globalAlpha = isOpen ? 0.45 : 1; // what one follows stays visible
    context.fill();
    context.globalAlpha = 1;
    for (const [width, colour] of [[4, "rgba(0, 0, 0, .55)"], [2, look.line]]) {
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
    if (isOpen) {
      for (const [x, y] of corners.length > 60 ? [corners[0]] : corners) {
        context.beginPath();
        context.arc(x, y, 3.5, 0, 2 * Math.PI);
        context.fillStyle = "#fff";
        context.fill();
        context.lineWidth = 1.5;
        context.strokeStyle = "#1a2230";
        context.stroke();
      }
    }
  }

  paintCursor(context) {
    const look = LOOKS[TOOLS[this.tool].label];
    for (const [width, colour] of [[3.5, "rgba(0, 0, 0, .5)"], [1.5, look.line]]) {
      context.beginPath();
      context.arc(this.pointer.x, this.pointer.y, this.radius, 0, 2 * Math.PI);
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  paintFlash(context, origin, zoom) {
    const left = this.flash ? this.flash.until - performance.now() : 0;
    if (left <= 0) return;
    const [top, start, bottom, end] = this.flash.box;
    const margin = 10;
    context.strokeStyle = `rgba(26, 34, 48, ${Math.min(1, left / 600)})`;
    context.lineWidth = 2;
    context.beginPath();
    context.roundRect(
      origin.x + start * zoom - margin, origin.y + top * zoom - margin,
      (end - start) * zoom + 2 * margin, (bottom - top) * zoom + 2 * margin, 8,
    );
    context.stroke();
    this.paint();
  }
}
