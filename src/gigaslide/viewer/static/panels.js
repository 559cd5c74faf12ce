// The list of regions, the notes at the lower edge, and what the server is at.

import { get } from "./api.js";
import { writeArea, writeCount } from "./readout.js";

const KINDS = {
  missed: ["Missed tissue", "#e66100"],
  false: ["False tissue", "#005ae6"],
  prediction: ["Piece", "#009e73"],
  truth: ["Piece", "#14181f"],
};
const NOTE_MS = 5000;
const [SMALLEST_VIEW_PX, LARGEST_VIEW_PX] = [600, 4000]; // of level 0
const MARGIN = 1.8;

const byId = (id) => document.getElementById(id);

export function note(text, { bad = false, actions = [], keep = false } = {}) {
  const toast = document.createElement("div");
  toast.className = `toast card${bad ? " bad" : ""}`;
  const line = document.createElement("div");
  line.append(...[text].flat());
  toast.append(line);
  const row = document.createElement("div");
  row.className = "actions";
  const close = () => toast.remove();
  for (const [label, act] of [...actions, ...(keep ? [["Close", () => {}]] : [])]) {
    const button = document.createElement("button");
    button.className = "link";
    button.textContent = label;
    button.addEventListener("click", () => {
      act();
      close();
    });
    row.append(button);
  }
  if (row.children.length) toast.append(row);
  byId("toasts").replaceChildren(toast);
  if (!keep) setTimeout(close, NOTE_MS);
}

export function code(text, isLine = false) {
  const element = document.createElement("code");
  if (isLine) element.className = "line";
  element.textContent = text;
  return element;
}

export function showWork(state) {
  const [share, text] =
    state.masks_share < 1 ? [state.masks_share, "Reading the masks"]
    : !state.regions_ready && !state.problem ? [null, "Looking for regions"]
    : state.overview_share < 1 ? [state.overview_share, "Reading the slide once, for the overview"]
    : [1, ""];
  byId("work").hidden = !text;
  byId("work-text").textContent = text;
  const bar = byId("work-share");
  if (share === null) bar.removeAttribute("value");
  else bar.value = share;
  return Boolean(text);
}

export class Regions {
  constructor(view, drawing, facts) {
    Object.assign(this, { view, drawing, facts });
    this.regions = [];
    this.current = -1;
    byId("next").addEventListener("click", () => this.next());
    byId("previous").addEventListener("click", () => this.previous());
  }

  async load() {
    const found = await get("regions");
    this.regions = found.regions;
    const differ = this.facts.mask && this.facts.truth;
    if (!differ && !this.facts.mask && !this.facts.truth) return;
    byId("regions").hidden = false;
    byId("regions-title").textContent = differ ? "Disagreement" : "Pieces of tissue";
    byId("regions-sum").textContent = this.sum(found, differ);
    byId("regions-list").replaceChildren(...this.regions.map((region, index) => this.row(region, index)));
  }

  sum(found, differ) {
    const count = this.regions.length + found.more;
    if (!count) return differ ? "Prediction and truth agree everywhere." : "No tissue.";
    const total = (key) => this.regions.reduce((sum, region) => sum + (region[key] ?? 0), 0) + (found[`more_${key}`] ?? 0);
    const um2 = this.facts.mpp ? total("um2") : null;
    const shown = found.more ? `, the ${this.regions.length} largest listed` : "";
    return `${writeCount(count)} area${count === 1 ? "" : "s"}, ${writeArea({ um2, px: total("px") })}${shown}`;
  }

  row(region, index) {
    const [kind, colour] = KINDS[region.kind];
    const button = document.createElement("button");
    const parts = [["dot", ""], ["kind", kind], ["size", writeArea(region)]].map(([name, text]) => {
      const part = document.createElement("span");
      part.className = name;
      part.textContent = text;
      return part;
    });
    parts[0].style.background = colour;
    button.append(...parts);
    button.addEventListener("click", () => this.go(index));
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  next() {
    this.go(this.current + 1);
  }

  previous() {
    this.go(Math.max(this.current, 0) - 1);
  }

  go(index) {
    if (!this.regions.length) return;
    this.current = (index + this.regions.length) % this.regions.length;
    const rows = [...byId("regions-list").querySelectorAll("button")];
    rows.forEach((row, number) => row.setAttribute("aria-current", number === this.current));
    rows[this.current].classList.add("seen");
    rows[this.current].scrollIntoView({ block: "nearest" });
    const { box, point } = this.regions[this.current];
    const [top, left, bottom, right] = box;
    const size = Math.max(bottom - top, right - left) * MARGIN;
    const fits = size <= LARGEST_VIEW_PX;
    const centre = fits ? { x: (left + right) / 2, y: (top + bottom) / 2 } : { x: point[1], y: point[0] };
    const shown = Math.min(LARGEST_VIEW_PX, Math.max(SMALLEST_VIEW_PX, size));
    this.view.show(centre, shown, shown);
    this.drawing.point(box);
  }
}
