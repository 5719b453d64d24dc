// Answers of SPARQL: yes or no, rows as a table, triples as a table and as a small graph.

import { h, set, svg } from "./dom.js";

const ROWS_SHOWN_MAX = 500, NODES_MAX = 60, TURNS = 300;
const WIDTH = 760, HEIGHT = 460;

export function term(value) {
  if (!value) return "";
  if (value.type === "uri") return `<${value.value}>`;
  if (value.type === "bnode") return `_:${value.value}`;
  const tail = value["xml:lang"] ? `@${value["xml:lang"]}` : value.datatype ? `^^<${value.datatype}>` : "";
  return `"${value.value}"${tail}`;
}

// Lines of N-Triples; what is no such line is left out.
export function triples(text) {
  const one = /(<[^>]*>|_:\S+|"(?:[^"\\]|\\.)*"(?:@[\w-]+|\^\^<[^>]*>)?)/g;
  return text.split("\n").map((line) => line.match(one)).filter((parts) => parts?.length >= 3).map((parts) => parts.slice(0, 3));
}

// The end of an address is what one reads.
function brief(name) {
  const word = name.startsWith("<") ? name.slice(1, -1).replace(/[#/]$/, "").split(/[#/]|^urn:/).pop() || name : name.replace(/\^\^<.*$/, "");
  return word.length > 22 ? `${word.slice(0, 21)}…` : word;
}

// Each node pushes the others away, and edges pull: the same nodes lie at the same places every time.
function laidOut(edges) {
  const nodes = new Map();
  for (const name of edges.flatMap(([from, , to]) => [from, to])) if (nodes.size < NODES_MAX && !nodes.has(name)) nodes.set(name, { name });
  const all = [...nodes.values()];
  all.forEach((node, place) => {
    const angle = place * 2.4, radius = 20 + 24 * Math.sqrt(place);
    Object.assign(node, { x: radius * Math.cos(angle), y: radius * Math.sin(angle) });
  });
  const drawn = edges.filter(([from, , to]) => nodes.has(from) && nodes.has(to));
  const ideal = Math.min(150, Math.max(60, 500 / Math.sqrt(all.length + 1)));
  for (let turn = 0; turn < TURNS; turn += 1) {
    const step = 12 * (1 - turn / TURNS) + 0.3;
    for (const node of all) { node.fx = -node.x * 0.01; node.fy = -node.y * 0.02; }
    const push = (one, other, force) => {
      const dx = other.x - one.x || 0.1, dy = other.y - one.y || 0.1, far = Math.hypot(dx, dy);
      const power = force(far) / far;
      one.fx -= dx * power; one.fy -= dy * power; other.fx += dx * power; other.fy += dy * power;
    };
    all.forEach((one, place) => all.slice(place + 1).forEach((other) => push(one, other, (far) => (ideal * ideal) / far / 10)));
    for (const [from, , to] of drawn) if (from !== to) push(nodes.get(from), nodes.get(to), (far) => (ideal - far) / 6);
    for (const node of all) {
      const far = Math.hypot(node.fx, node.fy) || 1;
      node.x += (node.fx / far) * Math.min(far, step); node.y += (node.fy / far) * Math.min(far, step);
    }
  }
  return { nodes, all, drawn };
}

function graph(edges) {
  const { nodes, all, drawn } = laidOut(edges);
  const [xs, ys] = [all.map((node) => node.x), all.map((node) => node.y)];
  const fit = (list, room, margin) => {
    const least = Math.min(...list), size = Math.max(...list) - least || 1;
    return (value) => (list.length === 1 ? room / 2 : margin + ((value - least) / size) * (room - 2 * margin));
  };
  const x = fit(xs, WIDTH, 90), y = fit(ys, HEIGHT, 30);
  const parts = [svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 15, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" })))];
  for (const [from, name, to] of drawn) {
    const [one, other] = [nodes.get(from), nodes.get(to)];
    parts.push(svg("line", { class: "edge", x1: x(one.x), y1: y(one.y), x2: x(other.x), y2: y(other.y), "marker-end": "url(#arrow)" }, svg("title", {}, `${from} ${name} ${to}`)));
    parts.push(svg("text", { class: "edge-name", x: (x(one.x) + x(other.x)) / 2, y: (y(one.y) + y(other.y)) / 2 - 3, "text-anchor": "middle" }, brief(name)));
  }
  for (const node of all) {
    const isLiteral = node.name.startsWith('"');
    parts.push(svg("circle", { class: isLiteral ? "node literal" : "node", cx: x(node.x), cy: y(node.y), r: isLiteral ? 5 : 7 }, svg("title", {}, node.name)));
    parts.push(svg("text", { class: "node-name", x: x(node.x), y: y(node.y) - 10, "text-anchor": "middle" }, brief(node.name)));
  }
  const cut = edges.length - drawn.length;
  return h("div", {}, svg("svg", { class: "graph", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Graph of ${all.length} nodes and ${drawn.length} edges; the table has the same` }, ...parts),
    cut > 0 ? h("p", { class: "quiet small" }, `${cut} triples are left out: a graph of more than ${NODES_MAX} nodes says nothing.`) : null);
}

function table(names, rows) {
  const lines = rows.slice(0, ROWS_SHOWN_MAX).map((row) => h("tr", {}, row.map((cell) => h("td", { class: "long" }, cell))));
  return h("div", {}, h("p", { class: "quiet small" }, `${rows.length} ${rows.length === 1 ? "row" : "rows"}${rows.length > ROWS_SHOWN_MAX ? `, the first ${ROWS_SHOWN_MAX} shown` : ""}.`),
    h("div", { class: "scroll" }, h("table", { id: "rows" }, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, lines))));
}

// A table, and a graph beside it if the rows are edges.
function both(names, rows, edges) {
  if (!edges.length) return table(names, rows);
  const place = h("div");
  const show = (isGraph) => {
    set(place, isGraph ? graph(edges) : table(names, rows));
    tabs.forEach((tab, index) => tab.setAttribute("aria-pressed", String((index === 1) === isGraph)));
  };
  const tabs = ["Table", "Graph"].map((words, index) => h("button", { type: "button", onclick: () => show(index === 1) }, words));
  show(false);
  return h("div", {}, h("div", { class: "row tabs" }, tabs), place);
}

// An answer in JSON, or N-Triples as text.
export function result(answer) {
  if (typeof answer === "string") {
    const found = triples(answer);
    return found.length ? both(["subject", "predicate", "object"], found, found) : h("p", {}, "No triples.");
  }
  if ("boolean" in answer) return h("p", {}, h("strong", {}, answer.boolean ? "yes" : "no"));
  if ("changed" in answer) return h("p", {}, h("strong", {}, answer.changed ? "changed" : "nothing to change"), `; the space has version ${answer.version}.`);
  const names = answer.head.vars ?? [];
  const bindings = answer.results.bindings;
  const rows = bindings.map((row) => names.map((name) => term(row[name])));
  // Three columns, of which the first are things and the second relations.
  const isEdges = names.length === 3 && bindings.length > 0 && bindings.every((row) => row[names[0]] && row[names[1]]?.type === "uri" && row[names[2]]);
  return both(names.map((name) => `?${name}`), rows, isEdges ? rows : []);
}
