// Elements without HTML: whatever comes from clients is text, wherever it is put.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  for (const child of children) element.append(child instanceof Node ? child : visible(String(child)));
  return element;
}

export function add(element, children) {
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : visible(String(child)));
  }
  return element;
}

export function set(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

// Characters that one does not see, or that turn the line round, are shown as what they are.
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) =>
    c === "\n" ? "\n" : `\\u{${c.codePointAt(0).toString(16)}}`);
}

export function number(value, digits = 1) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(digits)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(digits)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(digits)} k`;
  return Number.isInteger(value) ? String(value) : value.toFixed(size >= 100 ? 0 : digits);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) { value /= 1024; place += 1; }
  return `${place === 0 ? value : value.toFixed(1)} ${units[place]}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

// Milliseconds as one says them.
export function delay(ms) {
  if (!ms) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 9950 ? `${(ms / 1000).toFixed(1)} s` : span(ms / 1000);
}

const STATES = { ok: ["good", "ok"], away: ["quiet", "away"], slow: ["warn", "slow"], losing: ["bad", "losing"],
  "away-losing": ["bad", "away, losing"],
  slowed: ["warn", "slowed"],
  "backed-off": ["bad", "backed-off"], paused: ["bad", "paused"], closed: ["quiet", "closed"], banned: ["bad", "banned"],
  open: ["good", "open"], up: ["good", "up"], connecting: ["warn", "connecting"], down: ["bad", "down"], failed: ["bad", "failed"], draining: ["warn", "draining"] };

export function stateBadge(state) {
  const [kind, word] = STATES[state] ?? ["quiet", state];
  return h("span", { class: `badge ${kind}` }, word);
}

// The state of a client; who floods or loses by the latest look is called so, whatever else is said of it.
export function troubleBadge(live, row) {
  const found = (kind) => live.tick?.now.troubles?.some((it) => it.client === row.client_id && it.kind === kind);
  if (found("floods")) return h("span", { class: "badge bad" }, "floods");
  // Not well, and no alarm: nobody suffers.
  return row.state === "ok" && found("unusual") ? h("span", { class: "badge quiet" }, "unusual") : stateBadge(row.state);
}

export const troubleWord = (live, row) => troubleBadge(live, row).textContent;

export function clientLink(id) {
  return h("a", { href: `#/clients/${encodeURIComponent(id)}` }, id === "" ? "(empty)" : id);
}

export function card(title, size, ...children) {
  return h("section", { class: `card ${size}` }, title ? h("h2", {}, title) : null, ...children);
}

export function figure(label) {
  const value = h("b", {}, "–");
  const show = (text, color) => { set(value, text); value.className = color || ""; };
  return { element: h("div", { class: "figure" }, value, h("span", {}, label)), set: show };
}

// A table whose rows stay where they are while their contents change: nothing is lost that has the focus.
// Columns: { title, text(row) | node(row) with state(row), num, kind, sort }; look: "stack" or "compact" on a telephone.
export class Table {
  constructor(columns, { caption, empty = "Nothing here.", look = "stack", sort, onsort } = {}) {
    this.columns = columns;
    this.rows = new Map();
    this.body = h("tbody");
    this.head = columns.map((column) => {
      const name = column.sort && onsort
        ? h("button", { type: "button", onclick: () => onsort(column.sort) }, column.title) : column.title;
      return h("th", { scope: "col", class: column.num ? "num" : null }, name);
    });
    const head = this.head;
    this.sorted(sort);
    this.empty = h("p", { class: "quiet" }, empty);
    this.table = h("table", { class: look }, caption ? h("caption", {}, caption) : null,
      h("thead", {}, h("tr", {}, head)), this.body);
    this.element = h("div", { class: "scroll" }, this.table, this.empty);
    this.update([], () => "");
  }

  // Which column the rows are sorted by: names upwards, all else downwards.
  sorted(sort) {
    this.columns.forEach((column, place) => {
      const words = column.sort === "id" ? "ascending" : "descending";
      if (column.sort && column.sort === sort) this.head[place].setAttribute("aria-sort", words);
      else this.head[place].removeAttribute("aria-sort");
    });
  }

  update(rows, key) {
    const seen = new Set();
    let before = null;
    for (const row of rows) {
      const name = key(row);
      seen.add(name);
      let line = this.rows.get(name);
      if (!line) {
        const cells = this.columns.map((column) => h("td", {
          class: [column.num ? "num" : "", column.kind ?? ""].join(" ").trim() || null, "data-title": column.title }));
        line = { element: h("tr", {}, cells), cells, texts: [] };
        this.rows.set(name, line);
      }
      this.columns.forEach((column, place) => {
        const text = column.text ? visible(String(column.text(row))) : column.state?.(row) ?? name;
        if (line.texts[place] === text) return;
        line.texts[place] = text;
        // In the narrow rows of a telephone what says nothing is left out.
        line.cells[place].toggleAttribute("data-nothing", text === "0" || text === "–");
        if (column.node) set(line.cells[place], column.node(row));
        else line.cells[place].textContent = text;
      });
      const next = before ? before.nextSibling : this.body.firstChild;
      if (next !== line.element) this.body.insertBefore(line.element, next);
      before = line.element;
    }
    for (const [name, line] of this.rows) {
      if (!seen.has(name)) { line.element.remove(); this.rows.delete(name); }
    }
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
  }
}

// A note that goes away; with `undo` it stays longer and has a button.
export function toast(text, undo) {
  const place = document.getElementById("toast");
  const note = h("div", {}, text, undo ? h("button", { type: "button", onclick: () => { note.remove(); undo(); } }, "Undo") : null);
  place.append(note);
  setTimeout(() => note.remove(), undo ? 20000 : 6000);
}

// Asks once, in the words of the button that it was asked for. True: yes.
export function confirmed(question, words, isDanger) {
  return new Promise((decide) => {
    const dialog = h("dialog", { "aria-label": question });
    const end = (answer) => () => { dialog.close(); dialog.remove(); decide(answer); };
    const yes = h("button", { type: "button", id: "yes", class: isDanger ? "danger" : "main", onclick: end(true) }, words);
    add(dialog, [h("p", {}, question), h("div", { class: "row" }, yes, h("button", { type: "button", onclick: end(false) }, "Cancel"))]);
    dialog.addEventListener("cancel", end(false));
    document.body.append(dialog);
    dialog.showModal();
    yes.focus();
  });
}
