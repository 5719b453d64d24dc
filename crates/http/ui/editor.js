// An editor for SPARQL: highlighting behind a plain text box, prefixes, history. It knows no broker: `run(text, isUpdate)`
// is whoever's it is.

import { h, set } from "./dom.js";

const PREFIXES = { rdf: "http://www.w3.org/1999/02/22-rdf-syntax-ns#", rdfs: "http://www.w3.org/2000/01/rdf-schema#", xsd: "http://www.w3.org/2001/XMLSchema#",
  owl: "http://www.w3.org/2002/07/owl#", sosa: "http://www.w3.org/ns/sosa/", foaf: "http://xmlns.com/foaf/0.1/", schema: "http://schema.org/" };
const EXAMPLES = [
  ["Everything, the first 20", "SELECT ?s ?p ?o\nWHERE { ?s ?p ?o }\nLIMIT 20"],
  ["How many of each class", "SELECT ?class (COUNT(?s) AS ?number)\nWHERE { ?s a ?class }\nGROUP BY ?class\nORDER BY DESC(?number)"],
  ["As a graph", "CONSTRUCT { ?s ?p ?o }\nWHERE { ?s ?p ?o }\nLIMIT 40"],
  ["Is there anything?", "ASK { ?s ?p ?o }"],
  ["Insert something", "INSERT DATA { <urn:kitchen> <urn:temperature> 21.5 }"],
  ["Change a value", "DELETE { <urn:kitchen> <urn:temperature> ?old }\nINSERT { <urn:kitchen> <urn:temperature> 22.0 }\nWHERE { OPTIONAL { <urn:kitchen> <urn:temperature> ?old } }"],
];
const HISTORY_MAX = 30, HIGHLIGHT_MAX = 20000;
const TOKENS = /(#[^\n]*)|(<[^<>\s"{}|^`\\]*>)|("""[\s\S]*?"""|'''[\s\S]*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|([?$]\w+)|(\b(?:BASE|PREFIX|SELECT|DISTINCT|REDUCED|CONSTRUCT|DESCRIBE|ASK|FROM|NAMED|WHERE|ORDER|BY|ASC|DESC|LIMIT|OFFSET|GROUP|HAVING|AS|OPTIONAL|GRAPH|UNION|MINUS|FILTER|BIND|VALUES|UNDEF|EXISTS|NOT|IN|INSERT|DELETE|DATA|WITH|USING|LOAD|CLEAR|DROP|CREATE|ADD|MOVE|COPY|TO|INTO|DEFAULT|ALL|SILENT|SERVICE|COUNT|SUM|MIN|MAX|AVG|SAMPLE|GROUP_CONCAT)\b)|([A-Za-z][\w-]*:[\w.-]*)|([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)/gi;
const KINDS = ["comment", "iri", "string", "variable", "keyword", "prefixed", "literal"];

export function highlighted(text) {
  if (text.length > HIGHLIGHT_MAX) return [text];
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TOKENS)) {
    if (match.index > at) parts.push(text.slice(at, match.index));
    const kind = KINDS[match.slice(1).findIndex((part) => part !== undefined)];
    parts.push(h("span", { class: `t-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}

// Text without comments, addresses and strings: what is left says what kind it is, and which prefixes are used.
const bare = (text) => text.replace(/<[^<>\s]*>|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|#[^\n]*/g, " ");

export function isUpdate(text) {
  const word = bare(text).replace(/\b(?:BASE|PREFIX\s+[\w-]*:)\s*/gi, " ").match(/[A-Za-z]+/)?.[0] ?? "";
  return /^(INSERT|DELETE|WITH|LOAD|CLEAR|DROP|CREATE|ADD|MOVE|COPY)$/i.test(word);
}

// Known prefixes that are used and not declared are declared.
export function withPrefixes(text) {
  const plain = bare(text);
  const declared = new Set([...plain.matchAll(/PREFIX\s+([\w-]*):/gi)].map((match) => match[1]));
  const used = new Set([...plain.matchAll(/(?:^|[\s({;,.|/^!])([A-Za-z][\w-]*):/g)].map((match) => match[1]));
  const lines = [...used].filter((name) => PREFIXES[name] && !declared.has(name)).map((name) => `PREFIX ${name}: <${PREFIXES[name]}>\n`);
  return lines.join("") + text;
}

function stored(key) {
  try { return JSON.parse(localStorage.getItem(key) ?? "[]"); } catch { return []; }
}

export class Editor {
  // run(text, isUpdate) answers with what is to be shown.
  constructor({ run, mayUpdate, key = "sparql-history" }) {
    Object.assign(this, { key });
    this.behind = h("pre", { class: "behind", "aria-hidden": "true" });
    this.text = h("textarea", { id: "query", spellcheck: "false", autocapitalize: "off" });
    this.history = h("select", { id: "query-history" });
    this.examples = h("select", { id: "query-example" }, h("option", { value: "" }, "…"), EXAMPLES.filter(([, text]) => mayUpdate || !isUpdate(text)).map(([name, text]) => h("option", { value: text }, name)));
    this.button = h("button", { type: "submit", class: "main" }, "Run (Ctrl+Enter)");
    this.out = h("div", { role: "status", "aria-live": "polite", id: "result" });
    this.kind = h("span", { class: "quiet small" }, "");
    this.text.value = stored(this.key)[0] ?? EXAMPLES[0][1];
    this.text.addEventListener("input", () => this.draw());
    this.text.addEventListener("scroll", () => { this.behind.scrollTop = this.text.scrollTop; this.behind.scrollLeft = this.text.scrollLeft; });
    const submit = (event) => { event.preventDefault(); this.submit(run); };
    this.text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event); });
    for (const list of [this.history, this.examples]) list.addEventListener("change", () => { if (list.value) this.put(list.value); list.value = ""; });
    this.element = h("div", {}, h("form", { onsubmit: submit },
      h("label", { for: "query" }, "SPARQL", h("div", { class: "code" }, this.behind, this.text)),
      h("div", { class: "row" }, this.button, h("label", { for: "query-example" }, "Examples", this.examples), h("label", { for: "query-history" }, "History", this.history),
        h("button", { type: "button", onclick: () => this.put(withPrefixes(this.text.value)) }, "Add prefixes"), this.kind)), this.out);
    this.recall();
    this.draw();
  }

  put(text) { this.text.value = text; this.draw(); this.text.focus(); }

  draw() {
    set(this.behind, highlighted(this.text.value), "\n ");
    set(this.kind, isUpdate(this.text.value) ? "an update: it changes the space" : "");
  }

  recall() {
    set(this.history, h("option", { value: "" }, "…"), stored(this.key).map((text) => h("option", { value: text }, text.replace(/\s+/g, " ").slice(0, 70))));
  }

  async submit(run) {
    this.text.value = withPrefixes(this.text.value);
    this.draw();
    const text = this.text.value;
    localStorage.setItem(this.key, JSON.stringify([text, ...stored(this.key).filter((it) => it !== text)].slice(0, HISTORY_MAX)));
    this.recall();
    this.button.disabled = true;
    const began = performance.now();
    try {
      const shown = await run(text, isUpdate(text));
      set(this.out, shown, h("p", { class: "quiet small" }, `${(performance.now() - began).toFixed(0)} ms`));
    } catch (problem) {
      set(this.out, h("pre", { class: "error" }, problem.message));
    }
    this.button.disabled = false;
  }
}
