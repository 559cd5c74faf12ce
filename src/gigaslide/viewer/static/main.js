// Puts the page together: the slide, the layers over it, the tools, the list of regions.

import { get, post, whenGone } from "./api.js";
import { Drawing } from "./drawing.js";
import { connectKeys } from "./keys.js";
import { Layers } from "./layers.js";
import { code, note, Regions, showWork } from "./panels.js";
import { Readout } from "./readout.js";

const NAVIGATOR_PX = 190; // its longer side
// What the panels cover of the window.
const [SIDE_PX, TOOLS_PX, MARGIN_PX] = [290, 96, 14];
const ASK_MS = 600;
const HEARTBEAT_MS = 5000;
const MOST_ZOOM = 16; // px of the screen per px of level 0

const byId = (id) => document.getElementById(id);

// What the rest of the page needs of OpenSeadragon, in px of the screen and of level 0.
class View {
  constructor(viewer) {
    this.viewer = viewer;
  }

  get slide() {
    return this.viewer.world.getItemAt(0);
  }

  frame() {
    if (!this.slide) return { origin: { x: 0, y: 0 }, zoom: 0 };
    const at = (x, y) => this.slide.imageToViewerElementCoordinates(new OpenSeadragon.Point(x, y), true);
    const [origin, right] = [at(0, 0), at(1000, 0)];
    return { origin, zoom: (right.x - origin.x) / 1000 };
  }

  zoom() {
    return this.frame().zoom;
  }

  toSlide(position) {
    const point = this.slide.viewerElementToImageCoordinates(position);
    return [point.x, point.y];
  }

  zoomBy(factor) {
    this.viewer.viewport.zoomBy(factor).applyConstraints();
  }

  // By shares of the view.
  panBy(x, y) {
    const bounds = this.viewer.viewport.getBounds();
    this.viewer.viewport.panBy(new OpenSeadragon.Point(x * bounds.width, y * bounds.height)).applyConstraints();
  }

  home(immediately = false) {
    const { x, y } = this.slide.getContentSize();
    this.show({ x: x / 2, y: y / 2 }, x, y, immediately);
  }

  // A part of the slide, in the part of the window that no panel covers.
  show(centre, width, height, immediately = false) {
    const screen = this.viewer.container.getBoundingClientRect();
    const free = {
      width: Math.max(screen.width / 4, screen.width - SIDE_PX - MARGIN_PX),
      height: Math.max(screen.height / 4, screen.height - TOOLS_PX - MARGIN_PX),
    };
    const unit = Math.max(width / free.width, height / free.height); // px of level 0 per px of the screen
    const corner = [centre.x - (SIDE_PX + free.width / 2) * unit, centre.y - (MARGIN_PX + free.height / 2) * unit];
    const bounds = this.slide.imageToViewportRectangle(...corner, screen.width * unit, screen.height * unit);
    this.viewer.viewport.fitBounds(bounds, immediately);
  }
}

function openViewer(facts) {
  const { width, height } = facts.slide;
  const scale = NAVIGATOR_PX / Math.max(width, height);
  return OpenSeadragon({
    element: byId("slide"),
    drawer: "canvas",
    showNavigationControl: false,
    showNavigator: true,
    navigatorPosition: "TOP_RIGHT",
    navigatorWidth: `${Math.max(60, width * scale)}px`,
    navigatorHeight: `${Math.max(60, height * scale)}px`,
    navigatorAutoFade: false,
    maxZoomPixelRatio: MOST_ZOOM,
    minZoomImageRatio: 0.5,
    visibilityRatio: 0.2,
    zoomPerScroll: 1.25,
    animationTime: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 0.5,
    springStiffness: 9,
    blendTime: 0,
    immediateRender: false,
    maxImageCacheCount: 800,
    imageLoaderLimit: 8,
    gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true, flickEnabled: false },
    gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true },
    gestureSettingsPen: { clickToZoom: false },
  });
}

function describe(facts) {
  byId("name").textContent = facts.name;
  document.title = `${facts.name} \u2013 gigaslide`;
  const size = [facts.slide.width, facts.slide.height].map((px) => px.toLocaleString("en").replaceAll(",", "\u2009"));
  const mpp = facts.mpp ? `${Number(facts.mpp[1].toPrecision(3))} \u00b5m/px` : "pixel size unknown";
  byId("facts").textContent = `${size.join(" \u00d7 ")} px \u00b7 ${mpp}`;
}

function firstShown(facts, state) {
  const has = (name) => facts.layers.some((layer) => layer.name === name);
  const shown = ["slide", ...["prediction", "disagreement"].filter(has)];
  if (!has("prediction") && has("truth")) shown.push("truth");
  if (state.strokes || shown.length === 1) shown.push("corrections");
  return shown;
}

async function main() {
  const [facts, firstState] = await Promise.all([get("slide"), get("state")]);
  describe(facts);
  const viewer = openViewer(facts);
  viewer.addHandler("canvas-key", (event) => (event.preventDefaultAction = true)); // keys.js has them all
  const view = new View(viewer);
  const layers = new Layers(viewer, facts, byId("layers"));
  const readout = new Readout(view, facts);
  let state = firstState;

  const showState = (fresh) => {
    state = fresh;
    byId("undo").disabled = !state.can_undo;
    byId("redo").disabled = !state.can_redo;
    byId("save").classList.toggle("unsaved", !state.is_saved);
  };
  const drawing = new Drawing(viewer, view, layers, {
    state: showState,
    busy: (count) => byId("save").setAttribute("aria-busy", String(count > 0)),
    problem: (text) => note(text, { bad: true, keep: true }),
    tool: (tool) => {
      for (const button of document.querySelectorAll("[data-tool]")) {
        button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
      }
      drawing?.resize(drawing.radius);
    },
    radius: (screenPx, slidePx) => {
      byId("radius-input").value = screenPx;
      byId("radius-value").textContent = facts.mpp
        ? `\u2300 ${(2 * slidePx * facts.mpp[1]).toPrecision(2) * 1} \u00b5m`
        : `\u2300 ${Math.round(2 * slidePx)} px`;
    },
  });
  const regions = new Regions(view, drawing, facts);
  const save = async () => {
    const button = byId("save");
    if (button.disabled) return;
    button.disabled = true;
    button.textContent = "Saving\u2026";
    await drawing.sending;
    try {
      const { state: fresh, result } = await post("save");
      showState(fresh);
      const areas = `${result.tissue} area${result.tissue === 1 ? "" : "s"} of tissue`;
      const ignored = result.ignore ? `, ${result.ignore} to ignore` : "";
      const next = ["For the next training:", code(result.command, true)];
      note([`Saved ${areas}${ignored} to `, code(result.path), ". ", ...next], {
        actions: [["Copy the command", () => navigator.clipboard.writeText(result.command)]],
        keep: true,
      });
    } catch (error) {
      note(error.message, { bad: true, keep: true });
    }
    button.disabled = false;
    button.textContent = "Save";
  };
  const help = () => byId("help").showModal();

  whenGone(() => (byId("gone").hidden = false));
  for (const button of document.querySelectorAll("[data-tool]")) {
    button.addEventListener("click", () => drawing.choose(button.dataset.tool));
  }
  byId("radius-input").addEventListener("input", (event) => drawing.resize(Number(event.target.value)));
  byId("undo").addEventListener("click", () => drawing.undo());
  byId("redo").addEventListener("click", () => drawing.redo());
  byId("save").addEventListener("click", save);
  byId("help-button").addEventListener("click", help);
  byId("clear").addEventListener("click", () => {
    byId("help").close();
    drawing.change(() => post("clear"));
    note("All strokes are taken back.", { actions: [["Undo that", () => drawing.change(() => post("undo"))]] });
  });
  viewer.addHandler("update-viewport", () => {
    readout.update();
    if (document.body.classList.contains("brushes")) drawing.on.radius(drawing.radius, drawing.radius / view.zoom());
  });
  viewer.container.addEventListener("pointermove", (event) => {
    const [x, y] = view.slide ? view.toSlide(new OpenSeadragon.Point(event.clientX, event.clientY)) : [-1, -1];
    readout.point({ x, y });
  });
  viewer.container.addEventListener("pointerleave", () => readout.point(null));
  connectKeys({ view, layers, drawing, regions, save, help });

  await layers.open(state.version, firstShown(facts, state));
  view.home(true);
  showState(state);
  facts.warnings.forEach((text) => note(text));
  if (state.restored) {
    note(`${state.restored} stroke${state.restored === 1 ? "" : "s"} of last time are there again.`, {
      actions: [["Begin anew", () => drawing.change(() => post("clear"))]],
      keep: true,
    });
  }
  if (state.kept_aside) note(`Strokes on another mask were kept as ${state.kept_aside}.`, { keep: true });

  // Ask how far the server is, then only whether it is still there.
  let told = "";
  let listed = false;
  const watch = async () => {
    try {
      const fresh = await get("state");
      if (fresh.overview_share !== state.overview_share) layers.reset("slide");
      showState(fresh);
      if (fresh.problem && fresh.problem !== told) note(fresh.problem, { bad: true, keep: true });
      told = fresh.problem;
      if (fresh.regions_ready && !listed) {
        listed = true;
        await regions.load();
      }
      setTimeout(watch, showWork(fresh) ? ASK_MS : HEARTBEAT_MS);
    } catch {
      // the page says so
    }
  };
  await watch();
  document.body.dataset.ready = "true";
}

main().catch((error) => note(error.message, { bad: true, keep: true }));
