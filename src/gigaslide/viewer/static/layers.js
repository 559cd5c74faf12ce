// The slide and what lies over it: one OpenSeadragon image each, with a switch and an opacity.

const KEYS = { prediction: "1", truth: "2", disagreement: "3", corrections: "4" };
const SWAP_AFTER_MS = 4000;

function tileSource(described, version) {
  return {
    height: described.height,
    width: described.width,
    tileSize: described.tile,
    tileOverlap: described.overlap,
    getTileUrl: (level, x, y) => `/tiles/${described.name}/${version}/${level}/${x}_${y}.${described.ending}`,
  };
}

export class Layers {
  constructor(viewer, facts, list) {
    this.viewer = viewer;
    this.list = list;
    this.byName = new Map();
    this.version = 0;
    const slide = { ...facts.slide, title: "Slide", colours: [] };
    for (const described of [slide, ...facts.layers]) {
      this.byName.set(described.name, { described, shown: false, opacity: 1, image: null });
    }
  }

  // Adds the images from the bottom up, and the rows of the panel.
  async open(version, shown) {
    this.version = version;
    for (const [name, layer] of this.byName) {
      layer.shown = shown.includes(name);
      layer.image = await this.add(layer, layer.shown ? 1 : 0);
      this.list.append(this.row(name, layer));
    }
  }

  add(layer, opacity, options = {}) {
    return new Promise((resolve, reject) => {
      this.viewer.addTiledImage({
        tileSource: tileSource(layer.described, layer.described.name === "corrections" ? this.version : 0),
        x: 0, y: 0, width: 1, opacity,
        success: (event) => resolve(event.item),
        error: (event) => reject(new Error(event.message)),
        ...options,
      });
    });
  }

  row(name, layer) {
    const row = document.createElement("li");
    const title = document.createElement("label");
    title.className = "title";
    title.textContent = layer.described.title;
    title.htmlFor = `layer-${name}`;
    layer.box = document.createElement("input");
    Object.assign(layer.box, { type: "checkbox", id: `layer-${name}`, className: "switch", checked: layer.shown });
    layer.box.setAttribute("role", "switch");
    const [colour, second] = layer.described.colours;
    if (colour) layer.box.style.setProperty("--colour", colour);
    if (second) {
      layer.box.classList.add("two");
      layer.box.style.setProperty("--colour-two", second);
    }
    layer.box.addEventListener("change", () => this.show(name, layer.box.checked));
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: 100, value: 100, title: "Opacity" });
    slider.setAttribute("aria-label", `Opacity of ${layer.described.title}`);
    slider.addEventListener("input", () => {
      layer.opacity = slider.value / 100;
      this.refresh(layer);
    });
    const hint = document.createElement("span");
    hint.className = "hint";
    hint.textContent = KEYS[name] ?? "";
    row.append(layer.box, title, slider, hint);
    layer.row = row;
    row.classList.toggle("off", !layer.shown);
    return row;
  }

  has(name) {
    return this.byName.has(name);
  }

  isShown(name) {
    return this.byName.get(name)?.shown ?? false;
  }

  show(name, shown) {
    const layer = this.byName.get(name);
    if (!layer) return;
    layer.shown = shown;
    layer.box.checked = shown;
    layer.row.classList.toggle("off", !shown);
    this.refresh(layer);
  }

  toggle(name) {
    this.show(name, !this.isShown(name));
  }

  // Only the slide; the second time, what was there before.
  peek() {
    const over = [...this.byName.keys()].filter((name) => name !== "slide");
    const shown = over.filter((name) => this.isShown(name));
    if (shown.length) this.before = shown;
    for (const name of over) this.show(name, shown.length ? false : (this.before ?? []).includes(name));
  }

  refresh(layer) {
    layer.image?.setOpacity(layer.shown ? layer.opacity : 0);
  }

  reset(name) {
    this.byName.get(name).image?.reset();
  }

  // Shows the corrections of `version`: the new tiles are loaded unseen and take the place of the old ones at once.
  async correct(version, then) {
    if (version === this.version) return then();
    this.version = version;
    const layer = this.byName.get("corrections");
    const image = await this.add(layer, 0, { preload: true });
    if (version !== this.version) {
      this.viewer.world.removeItem(image);
      return;
    }
    await new Promise((resolve) => {
      if (!layer.shown || image.getFullyLoaded()) return resolve();
      image.addHandler("fully-loaded-change", (event) => event.fullyLoaded && resolve());
      setTimeout(resolve, SWAP_AFTER_MS);
    });
    const old = layer.image;
    if (version === this.version) {
      layer.image = image;
      image.setPreload(false);
      this.refresh(layer);
      this.viewer.world.removeItem(old);
      then();
    } else {
      this.viewer.world.removeItem(image);
    }
  }
}
