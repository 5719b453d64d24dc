import { h, set, card, figure, number, span, Table } from "./dom.js";
import { get, send, repeat } from "./api.js";

const ROWS_SHOWN_MAX = 500;
const FIRST = "SELECT ?s ?p ?o\nWHERE { ?s ?p ?o }\nLIMIT 20";

function term(value) {
  if (!value) return "";
  if (value.type === "uri") return `<${value.value}>`;
  if (value.type === "bnode") return `_:${value.value}`;
  const tail = value["xml:lang"] ? `@${value["xml:lang"]}` : value.datatype ? `^^<${value.datatype}>` : "";
  return `"${value.value}"${tail}`;
}

function result(answer) {
  if (typeof answer === "string") return h("pre", { tabindex: "0" }, answer || "(no triples)");
  if ("boolean" in answer) return h("p", {}, h("strong", {}, answer.boolean ? "yes" : "no"));
  const rows = answer.results.bindings;
  const names = answer.head.vars ?? [];
  const lines = rows.slice(0, ROWS_SHOWN_MAX).map((row) => h("tr", {}, names.map((name) => h("td", { class: "long" }, term(row[name])))));
  return h("div", {}, h("p", { class: "quiet small" }, `${rows.length} rows${rows.length > ROWS_SHOWN_MAX ? `, the first ${ROWS_SHOWN_MAX} shown` : ""}.`),
    h("div", { class: "scroll" }, h("table", { id: "rows" }, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, `?${name}`)))), h("tbody", {}, lines))));
}

function show(place, context) {
  const text = h("textarea", { id: "query", spellcheck: "false" });
  text.value = sessionStorage.getItem("query") ?? FIRST;
  const run = h("button", { type: "submit", class: "main" }, "Run (Ctrl+Enter)");
  const out = h("div", { role: "status", "aria-live": "polite", id: "result" });
  const submit = async (event) => {
    event?.preventDefault();
    sessionStorage.setItem("query", text.value);
    run.disabled = true;
    const began = performance.now();
    try {
      const answer = await send("POST", "queries", { query: text.value });
      set(out, result(answer), h("p", { class: "quiet small" }, `${(performance.now() - began).toFixed(0)} ms`));
    } catch (problem) {
      set(out, h("pre", { class: "error" }, problem.message));
    }
    run.disabled = false;
  };
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event); });
  const figures = { version: figure("changes so far"), answered: figure("questions answered"), evaluations: figure("evaluations"),
    ratio: figure("answers for each evaluation"), standing: figure("standing queries"), told: figure("notifications") };
  const problem = h("p", { class: "error", role: "alert" }, "");
  const running = new Table([
    { title: "Query", kind: "long", text: (row) => row.query },
    { title: "For", num: true, text: (row) => `${number(row.running_ms)} ms` },
    { title: "Waiting", num: true, text: (row) => row.waiting },
    { title: "", node: (row) => (context.may("operator") ? h("button", { type: "button", class: "danger", "aria-label": `Cancel query ${row.number}`,
      onclick: () => context.act("The query was cancelled", () => send("DELETE", `queries/${row.number}`)) }, "Cancel") : "") },
  ], { empty: "No query runs at the moment." });
  const slow = new Table([
    { title: "Query", kind: "long", text: (row) => row.query },
    { title: "Took", num: true, text: (row) => `${number(row.took_ms)} ms` },
    { title: "At", text: (row) => row.at },
    { title: "End", text: (row) => (row.is_cancelled ? "cancelled" : "by itself") },
  ], { empty: "No query took longer than 100 ms." });
  const standing = new Table([
    { title: "Query", kind: "long", text: (row) => row.query },
    { title: "Notifications", num: true, text: (row) => number(row.notifications) },
    { title: "For", num: true, text: (row) => span(row.age_s) },
  ], { empty: "No query stands. Subscribe over WebSocket at /subscribe, or with SSAP." });
  const requests = new Table([
    { title: "Kind", text: (row) => row.class }, { title: "Outcome", text: (row) => row.outcome },
    { title: "Requests", num: true, text: (row) => number(row.requests) },
  ], { empty: "No requests yet." });
  const off = h("p", { class: "card" }, "The smart space is off. Its doors are listeners.http and listeners.ssap.");
  const page = h("div", { class: "grid" },
    card("SPARQL", "c8", h("form", { onsubmit: submit }, h("label", { for: "query" }, "Query", text), h("div", { class: "row" }, run)), out,
      h("p", { class: "quiet small" }, "Questions only. Updates go to /update at the door of the smart space, with its own rights.")),
    card("Sharing", "c4", h("div", { class: "figures" }, Object.values(figures).map((it) => it.element)), h("h3", {}, "Requests"), requests.element),
    card("Queries under way", "c6", running.element), card("Slow queries", "c6", slow.element), card("Standing queries", "", standing.element));
  set(place, problem, page);
  return repeat(2, async () => {
    const answer = await get("space");
    if (!answer.is_on) return set(place, off);
    figures.version.set(number(answer.version));
    figures.answered.set(number(answer.questions_answered));
    figures.evaluations.set(number(answer.evaluations));
    figures.ratio.set(number(answer.coalescing_ratio, 2));
    figures.standing.set(number(answer.standing_queries));
    figures.told.set(number(answer.notifications));
    requests.update(answer.requests, (row) => `${row.class} ${row.outcome}`);
    const lists = await get("queries");
    running.update(lists.running, (row) => row.number);
    slow.update(lists.slow, (row) => `${row.at} ${row.took_ms} ${row.query}`);
    standing.update(lists.standing, (row) => row.number);
  }, (failure) => set(problem, failure ? failure.message : ""));
}

export const space = { title: "Smart space", show };
