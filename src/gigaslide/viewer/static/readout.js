// Scale bar, pixel position, magnification; and how lengths and areas are written.

const LONGEST_BAR_PX = 150;

const number = (value, digits = 0) =>
  value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits }).replaceAll(",", "\u2009");

export const writeCount = (count) => number(count);

export function writeArea(region) {
  if (region.um2 === null) return `${number(region.px)} px`;
  if (region.um2 >= 1e5) return `${(region.um2 / 1e6).toPrecision(3)} mm\u00b2`;
  return `${number(region.um2, region.um2 < 10 ? 1 : 0)} \u00b5m\u00b2`;
}

function roundDown(length) {
  const power = 10 ** Math.floor(Math.log10(length));
  return [5, 2, 1].map((step) => step * power).find((step) => step <= length * (1 + 1e-9));
}

function writeLength(um) {
  return um >= 1000 ? `${um / 1000} mm` : `${Number(um.toPrecision(3))} \u00b5m`;
}

export class Readout {
  constructor(view, facts) {
    this.view = view;
    this.facts = facts;
    this.elements = Object.fromEntries(
      ["scale-bar", "scale-text", "position", "magnification"].map((id) => [id, document.getElementById(id)]),
    );
  }

  update() {
    const { mpp, power } = this.facts;
    const zoom = this.view.zoom(); // px of the screen per px of level 0
    if (!(zoom > 0)) return;
    const unit = mpp ? mpp[1] : 1;
    const length = roundDown((LONGEST_BAR_PX / zoom) * unit);
    this.elements["scale-bar"].style.width = `${(length / unit) * zoom}px`;
    this.elements["scale-text"].textContent = mpp ? writeLength(length) : `${number(length)} px`;
    this.elements.magnification.textContent = power
      ? `${(power * zoom).toPrecision(power * zoom < 10 ? 2 : 3)}\u00d7`
      : `${number(zoom * 100)} %`;
  }

  // `point`: in px of level 0, or null when the pointer is not on the slide.
  point(point) {
    const { mpp, slide } = this.facts;
    const inside = point && point.x >= 0 && point.y >= 0 && point.x < slide.width && point.y < slide.height;
    if (!inside) {
      this.elements.position.textContent = "";
      return;
    }
    const [x, y] = [Math.floor(point.x), Math.floor(point.y)];
    const where = mpp ? `\n${number((x * mpp[1]) / 1000, 2)}, ${number((y * mpp[0]) / 1000, 2)} mm` : "";
    this.elements.position.textContent = `x ${number(x)}  y ${number(y)} px${where}`;
  }
}
