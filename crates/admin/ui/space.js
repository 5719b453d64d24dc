import { h, set, card, figure, number, span, delay, Table } from "./dom.js";
import { get, send, repeat } from "./api.js";
import { Editor } from "./editor.js";
import { result } from "./result.js";

function show(place, context) {
  const mayUpdate = context.may("admin");
  const run = async (text, isUpdate) => {
    if (isUpdate && !mayUpdate) throw new Error("Updates from here need the role admin. With rights of your own: /update, or the editor page, at the listener of the smart space.");
    return result(await (isUpdate ? send("POST", "updates", { update: text }) : send("POST", "queries", { query: text })));
  };
  const editor = new Editor({ run, mayUpdate });
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
    { title: "Took", num: true, text: (row) => delay(row.took_ms) },
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
  const off = h("p", { class: "card" }, "The smart space is off. Its listeners are listeners.http and listeners.ssap.");
  const page = h("div", { class: "grid" },
    card("SPARQL", "c8", editor.element, h("p", { class: "quiet small" }, mayUpdate
      ? "Queries and updates reach all graphs, whatever rights users have on them." : "Queries only: updates from here need the role admin.")),
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
