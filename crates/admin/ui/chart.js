// Lines over time, drawn as SVG: a crosshair with the values under the pointer or the arrow keys, a range to zoom into, and
// a scale that one spike does not flatten. Colour is never the only difference: every second line is dashed.

import { h, set, number, svg as s } from "./dom.js";

const LEFT = 60, RIGHT = 10, TOP = 14, BOTTOM = 22;
// Above this part of all values something is a spike, if it is so many times as high.
const USUAL_PART = 0.97, SPIKE = 3;
const DRAG_MIN = 8;

function nice(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  for (const step of [1, 1.5, 2, 3, 4, 6, 8, 10]) if (step * power >= most * 0.999) return step * power;
  return 10 * power;
}

// The top of the scale, and whether anything is above it.
export function scaleOf(values, isWhole) {
  const sorted = values.filter((value) => Number.isFinite(value)).sort((one, other) => one - other);
  const most = sorted[sorted.length - 1] ?? 0;
  const usual = sorted[Math.floor(sorted.length * USUAL_PART)] ?? 0;
  const isClipped = !isWhole && sorted.length > 20 && usual > 0 && most > SPIKE * usual;
  return { top: nice(isClipped ? usual * 1.25 : most), most, isClipped };
}

// Charts that are looked at together: one crosshair and one range for all of them.
export class ChartGroup {
  constructor() { this.charts = []; this.range = null; }

  point(at) { for (const chart of this.charts) chart.point(at); }

  zoom(range) {
    this.range = range;
    for (const chart of this.charts) chart.redraw();
  }
}

export class Chart {
  // lines: [{ name, color: 1..5, dash }]; format turns a value into words; least: the top of the scale is not below it.
  constructor(lines, { label, format = number, marks = "time", group = new ChartGroup(), least = 0 }) {
    Object.assign(this, { lines, label, format, marks, group, least, at: [], columns: [], isWhole: false, place: null });
    group.charts.push(this);
    this.values = lines.map(() => h("b", {}, ""));
    const legend = lines.map((line, place) => h("span", {},
      h("i", { class: `k${line.color} ${line.dash ? "dash" : ""}` }), `${line.name} `, this.values[place]));
    this.clip = h("button", { type: "button", class: "link", hidden: true, onclick: () => { this.isWhole = !this.isWhole; this.redraw(); } }, "");
    this.whole = h("button", { type: "button", class: "link", hidden: true, onclick: () => group.zoom(null) }, "Show all");
    this.svg = s("svg", { class: "chart", role: "img", tabindex: "0" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.words = h("span", { class: "unseen", "aria-live": "polite" }, "");
    this.element = h("div", { class: "plot" }, h("div", { class: "legend" }, legend, this.clip, this.whole), this.svg, this.tip, this.words);
    this.listen();
    this.redraw();
  }

  listen() {
    const when = (event) => this.first + ((event.clientX - this.svg.getBoundingClientRect().left - LEFT) / this.wide) * (this.last - this.first);
    this.svg.addEventListener("pointermove", (event) => {
      this.group.point(when(event));
      if (this.from !== undefined) this.mark(this.from, when(event));
    });
    this.svg.addEventListener("pointerleave", () => this.group.point(null));
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch" || this.at.length < 3) return;
      this.from = when(event);
      this.fromX = event.clientX;
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointerup", (event) => {
      const from = this.from;
      this.from = undefined;
      if (from === undefined) return;
      if (Math.abs(event.clientX - this.fromX) < DRAG_MIN) return this.redraw();
      const to = when(event);
      this.group.zoom([Math.min(from, to), Math.max(from, to)]);
    });
    this.svg.addEventListener("dblclick", () => this.group.zoom(null));
    this.svg.addEventListener("blur", () => this.group.point(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  // Arrows move the crosshair, + and - zoom around it, Escape ends both.
  key(event) {
    const [from, to] = this.shown();
    const last = to - 1, place = this.place ?? last;
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (move !== undefined && last >= from) {
      const next = Math.max(from, Math.min(last, place + move));
      this.group.point(this.at[next]);
      set(this.words, this.said(next).join(", "));
    } else if (event.key === "+" || event.key === "-") {
      const half = (this.last - this.first) * (event.key === "+" ? 0.25 : 1), middle = this.at[place] ?? this.last;
      const isAll = middle - half <= this.at[0] && middle + half >= this.at[this.at.length - 1];
      this.group.zoom(isAll ? null : [middle - half, middle + half]);
    } else if (event.key === "Escape") {
      this.group.point(null);
      this.group.zoom(null);
    } else return;
    event.preventDefault();
  }

  // at: numbers that grow; columns: as many lists of values as there are lines.
  draw(at, columns) {
    Object.assign(this, { at, columns });
    // What has left the memory of the broker cannot be zoomed into any more.
    if (this.group.range && at.length && this.group.range[1] < at[0]) this.group.range = null;
    if (this.from === undefined) this.redraw();
  }

  // The places of the first point that is shown and of the first that is not.
  shown() {
    const { range } = this.group;
    if (!range) return [0, this.at.length];
    const from = this.at.findIndex((value) => value >= range[0]), to = this.at.findIndex((value) => value > range[1]);
    const end = to < 0 ? this.at.length : to;
    return from < 0 || end - from < 2 ? [0, this.at.length] : [from, end];
  }

  time(value, isShort) {
    if (this.marks !== "time") return `${Math.round(value)} s`;
    const words = { hour: "2-digit", minute: "2-digit" };
    if (!isShort || this.last - this.first < 600) words.second = "2-digit";
    return new Date(value * 1000).toLocaleTimeString([], words);
  }

  redraw() {
    // As large as it is shown, so that letters keep their size.
    const width = this.svg.clientWidth || 720, height = this.svg.clientHeight || 210;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [from, to] = this.shown();
    const at = this.at.slice(from, to), columns = this.columns.map((column) => column.slice(from, to));
    const { top: wanted, most, isClipped } = scaleOf(columns.flat(), this.isWhole);
    const top = Math.max(wanted, this.least);
    this.wide = width - LEFT - RIGHT;
    [this.first, this.last] = [at[0] ?? 0, Math.max(at[at.length - 1] ?? 1, (at[0] ?? 0) + 1)];
    this.x = (value) => LEFT + ((value - this.first) / (this.last - this.first)) * this.wide;
    this.y = (value) => height - BOTTOM - (Math.min(value, top) / top) * (height - TOP - BOTTOM);
    this.bottom = height - BOTTOM;
    const parts = [...this.axes(top, width, height, at.length)];
    this.lines.forEach((line, place) => parts.push(...this.line(line, at, columns[place] ?? [], top, place)));
    this.range = s("rect", { class: "range", y: TOP, height: Math.max(0, this.bottom - TOP), width: 0, x: 0 });
    this.cross = s("g", { class: "cross" });
    this.svg.replaceChildren(...parts, this.range, this.cross);
    this.clip.hidden = !isClipped && !this.isWhole;
    set(this.clip, this.isWhole ? "Cut off spikes" : `▲ cut off: up to ${this.format(most)}`);
    this.whole.hidden = !this.group.range;
    this.legend(columns);
    this.point(this.under);
  }

  *axes(top, width, height, count) {
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const at = this.y(part * top);
      yield s("line", { class: part ? "axis" : "axis base", x1: LEFT, x2: width - RIGHT, y1: at, y2: at });
      if (part !== 0.25 && part !== 0.75) yield s("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, this.format(part * top));
    }
    if (count < 2) return;
    const marks = Math.max(2, Math.min(6, Math.floor(this.wide / 110)));
    for (let mark = 0; mark <= marks; mark += 1) {
      const value = this.first + (mark / marks) * (this.last - this.first);
      const anchor = mark === 0 ? "start" : mark === marks ? "end" : "middle";
      yield s("text", { x: this.x(value), y: height - 6, "text-anchor": anchor }, this.time(value, true));
    }
  }

  *line(line, at, column, top, place) {
    // A value that there is not is a gap.
    const runs = [[]];
    column.forEach((value, index) => {
      if (value === null || value === undefined) { if (runs[runs.length - 1].length) runs.push([]); } else runs[runs.length - 1].push([this.x(at[index]).toFixed(1), this.y(value).toFixed(1)]);
    });
    for (const run of runs.filter((points) => points.length)) {
      const points = run.map((point) => point.join(",")).join(" ");
      if (place === 0) yield s("polygon", { class: `area k${line.color}`, points: `${run[0][0]},${this.bottom} ${points} ${run[run.length - 1][0]},${this.bottom}` });
      // A single point has no length: its end is drawn.
      const attributes = { class: `k${line.color}`, points: run.length > 1 ? points : `${points} ${points}`, fill: "none", "stroke-width": 2, "stroke-linejoin": "round", "stroke-linecap": "round" };
      if (line.dash) attributes["stroke-dasharray"] = "6 4";
      yield s("polyline", attributes);
    }
    // What is above the scale has a mark, and its value in words.
    let marked = -99;
    for (const [index, value] of column.entries()) {
      const x = this.x(at[index]);
      if (!(value > top * 1.0001) || x - marked < 14) continue;
      marked = x;
      yield s("path", { class: `spike k${line.color}`, d: `M ${x} 2 l 5 9 h -10 z` }, s("title", {}, `${line.name} ${this.format(value)}`));
    }
  }

  legend(columns) {
    const now = this.lines.map((line, place) => {
      const value = columns[place]?.[columns[place].length - 1];
      const words = this.wordsOf(value);
      set(this.values[place], words);
      return `${line.name} ${words}`;
    });
    this.svg.setAttribute("aria-label", `${this.label}: ${now.join(", ")}. Arrow keys read values, plus and minus zoom.`);
  }

  wordsOf(value) { return value === undefined || value === null ? "–" : this.format(value); }

  mark(from, to) {
    const [one, other] = [this.x(Math.max(this.first, Math.min(from, to))), this.x(Math.min(this.last, Math.max(from, to)))];
    this.range.setAttribute("x", one);
    this.range.setAttribute("width", Math.max(0, other - one));
  }

  said(place) {
    return [this.time(this.at[place]), ...this.lines.map((line, index) => `${line.name} ${this.wordsOf(this.columns[index]?.[place])}`)];
  }

  // The crosshair is at the point next to this; none takes it away.
  point(when) {
    this.under = when;
    const [from, to] = this.shown();
    this.tip.hidden = when === null || when === undefined || to - from < 2;
    this.place = null;
    if (this.tip.hidden) return this.cross.replaceChildren();
    let place = from;
    while (place + 1 < to && Math.abs(this.at[place + 1] - when) <= Math.abs(this.at[place] - when)) place += 1;
    this.place = place;
    const x = this.x(this.at[place]);
    const isKnown = (line, index) => Number.isFinite(this.columns[index]?.[place]);
    const dots = this.lines.map((line, index) => isKnown(line, index) && s("circle", { class: `k${line.color}`, cx: x, cy: this.y(this.columns[index][place]), r: 4 })).filter(Boolean);
    this.cross.replaceChildren(s("line", { x1: x, x2: x, y1: TOP, y2: this.bottom }), ...dots);
    const [time, ...values] = this.said(place);
    set(this.tip, h("b", {}, time), values.map((words, index) => h("span", {}, h("i", { class: `k${this.lines[index].color} ${this.lines[index].dash ? "dash" : ""}` }), words)));
    const isRight = x > LEFT + this.wide / 2;
    this.tip.style.left = isRight ? "" : `${x + 12}px`;
    this.tip.style.right = isRight ? `${(this.svg.clientWidth || 720) - x + 12}px` : "";
  }
}
