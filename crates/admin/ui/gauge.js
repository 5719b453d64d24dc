// How hard the broker is pressed, as a gauge with five levels and their names.

import { h, set, svg as s } from "./dom.js";

const NAMES = ["calm", "busy", "strained", "overloaded", "emergency"];

export class Gauge {
  constructor() {
    this.point = (part, radius) => {
      const angle = Math.PI * (1 - part);
      return `${(75 + radius * Math.cos(angle)).toFixed(2)} ${(78 - radius * Math.sin(angle)).toFixed(2)}`;
    };
    this.arcs = NAMES.map((_, level) => s("path", { class: `l${level}`,
      d: `M ${this.point(level / 5 + 0.008, 60)} A 60 60 0 0 1 ${this.point((level + 1) / 5 - 0.008, 60)}` }));
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
