// Lines over time, drawn as SVG. Colour is never the only difference: every second line is dashed.

import { h, set, number } from "./dom.js";

const SPACE = "http://www.w3.org/2000/svg";
const LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 22;

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const child of children) element.append(child);
  return element;
}

function nice(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  for (const step of [1, 1.5, 2, 3, 4, 6, 8, 10]) if (step * power >= most) return step * power;
  return 10 * power;
}

export class Chart {
  // lines: [{ name, color: 1..5, dash }]; format turns a value into words.
  constructor(lines, { label, format = number, marks = "time" }) {
    this.lines = lines;
    this.label = label;
    this.format = format;
    this.marks = marks;
    this.values = lines.map((line) => h("span", {}, ""));
    const legend = lines.map((line, place) => h("span", {},
      h("i", { class: `k${line.color} ${line.dash ? "dash" : ""}` }), `${line.name} `, this.values[place]));
    this.svg = s("svg", { class: "chart", role: "img" });
    this.element = h("div", {}, h("div", { class: "legend" }, legend), this.svg);
    this.draw([], []);
  }

  // at: numbers that grow; columns: as many lists of values as there are lines.
  draw(at, columns) {
    // As large as it is shown, so that letters keep their size.
    const WIDTH = this.svg.clientWidth || 720, HEIGHT = this.svg.clientHeight || 210;
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    const most = nice(Math.max(0, ...columns.flat().filter(Number.isFinite)));
    const first = at[0] ?? 0, last = at[at.length - 1] ?? 1;
    const x = (value) => LEFT + ((value - first) / Math.max(1, last - first)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (Math.min(value, most) / most) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const height = y(part * most);
      parts.push(s("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: height, y2: height }));
      parts.push(s("text", { x: LEFT - 6, y: height + 4, "text-anchor": "end" }, this.format(part * most)));
    }
    if (at.length > 1) {
      for (const [place, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
        const value = first + place * (last - first);
        const words = this.marks === "time"
          ? new Date(value * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" })
          : `${Math.round(value)} s`;
        parts.push(s("text", { x: x(value), y: HEIGHT - 6, "text-anchor": anchor }, words));
      }
    }
    this.lines.forEach((line, place) => {
      const points = (columns[place] ?? []).map((value, index) => `${x(at[index]).toFixed(1)},${y(value ?? 0).toFixed(1)}`);
      const attributes = { class: `k${line.color}`, points: points.join(" "), fill: "none", "stroke-width": 2 };
      if (line.dash) attributes["stroke-dasharray"] = "6 4";
      if (points.length) parts.push(s("polyline", attributes));
    });
    this.svg.replaceChildren(...parts);
    const now = this.lines.map((line, place) => {
      const value = columns[place]?.[columns[place].length - 1];
      const words = value === undefined ? "–" : this.format(value);
      set(this.values[place], words);
      return `${line.name} ${words}`;
    });
    this.svg.setAttribute("aria-label", `${this.label}: ${now.join(", ")}`);
  }
}

const NAMES = ["calm", "busy", "strained", "overloaded", "emergency"];

export class Gauge {
  constructor() {
    const point = (part, radius) => {
      const angle = Math.PI * (1 - part);
      return `${(75 + radius * Math.cos(angle)).toFixed(2)} ${(78 - radius * Math.sin(angle)).toFixed(2)}`;
    };
    this.point = point;
    this.arcs = NAMES.map((_, level) => s("path", { class: `l${level}`,
      d: `M ${point(level / 5 + 0.008, 60)} A 60 60 0 0 1 ${point((level + 1) / 5 - 0.008, 60)}` }));
    this.needle = s("path", { class: "needle on", d: "" });
    this.svg = s("svg", { viewBox: "0 0 150 88", role: "img" }, ...this.arcs, this.needle);
    this.word = h("b", {}, "–");
    this.more = h("span", { class: "quiet" }, "");
    this.element = h("div", { class: "gauge" }, this.svg, h("div", {}, this.word, this.more));
  }

  show({ level, name, cause, age_s: age }) {
    this.arcs.forEach((arc, place) => arc.classList.toggle("on", place === level));
    this.needle.setAttribute("d", `M 75 78 L ${this.point((level + 0.5) / 5, 44)}`);
    set(this.word, `${level} ${name}`);
    set(this.more, cause ? `because of ${cause}, for ${age} s` : `for ${age} s; the broker itself has room`);
    this.svg.setAttribute("aria-label", `Pressure: level ${level} of 4, ${name}`);
  }
}
