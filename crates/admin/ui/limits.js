import { h, set, card, number, span, Table, confirmed } from "./dom.js";
import { get, send, repeat } from "./api.js";
import { whatIfCard } from "./what_if.js";

function show(place, context) {
  const may = context.may("operator");
  const problem = h("p", { class: "error", role: "alert" }, "");
  const turn = () => ask().catch((failure) => set(problem, failure.message));
  const remove = (label, words, path) => (may ? h("button", { type: "button", "aria-label": label,
    onclick: async () => { if (await confirmed(`${label}?`, "Remove")) { await context.act(words, () => send("DELETE", path)); turn(); } } }, "Remove") : "");
  const limits = new Table([
    { title: "Kind", text: (row) => row.kind }, { title: "Name", kind: "name", text: (row) => row.name },
    { title: "Rate /s", num: true, text: (row) => number(row.rate) }, { title: "At once", num: true, text: (row) => number(row.burst) },
    { title: "Entitled /s", num: true, text: (row) => number(row.entitled) },
    { title: "", node: (row) => remove(`Remove the limit of ${row.name}`, `${row.name} has no limit any more`, `limits?${row.kind}=${encodeURIComponent(row.name)}`) },
  ], { empty: "No limits of single clients or users. What is learned decides." });
  const bans = new Table([
    { title: "Client", kind: "name", text: (row) => row.client ?? "–" }, { title: "User", kind: "name", text: (row) => row.user ?? "–" },
    { title: "Network", text: (row) => row.network ?? "–" }, { title: "Left", num: true, text: (row) => span(row.left_s) },
    { title: "Tries", num: true, text: (row) => number(row.tries) },
    { title: "Last try", num: true, text: (row) => (row.last_try_s === null ? "–" : `${span(row.last_try_s)} ago`) },
    { title: "Reason", kind: "long", text: (row) => row.reason },
    { title: "", node: (row) => remove("Remove the ban", "May come in again", `bans?${new URLSearchParams(
      Object.entries(row).filter(([name]) => ["client", "user", "network"].includes(name)))}`) },
  ], { empty: "Nobody is kept out." });
  const name = h("input", { id: "name", required: true });
  const kind = h("select", { id: "kind" }, h("option", { value: "client" }, "client"), h("option", { value: "user" }, "user"));
  const rate = h("input", { id: "rate", value: "100/s", size: 8, required: true });
  const form = may ? h("form", { class: "row", onsubmit: async (event) => {
    event.preventDefault();
    await context.act(`${name.value} may publish ${rate.value}`, () => send("PUT", "limits", { [kind.value]: name.value, rate: rate.value }));
    turn();
  } }, h("label", { for: "kind" }, "Kind", kind), h("label", { for: "name" }, "Name", name), h("label", { for: "rate" }, "Rate", rate),
  h("button", { type: "submit" }, "Set the limit")) : h("p", { class: "quiet" }, "Changes need the role operator.");
  const audit = new Table([
    { title: "At", text: (row) => row.at }, { title: "User", text: (row) => row.user ?? "(no users)" },
    { title: "What", kind: "long", text: (row) => `${row.method} ${row.path}${row.whom ? ` (${row.whom})` : ""}` }, { title: "Answer", num: true, text: (row) => row.status },
  ], { empty: "Nothing was changed through the admin API." });
  const whatIf = whatIfCard(context);
  set(place, problem, h("div", { class: "grid" },
    card("Limits", "c6", form, limits.element, h("p", { class: "quiet small" }, "They outlive the process where there is a store, and hold for MQTT clients (messages) and KPs of the smart space (requests). To entitle a client instead:  tidegate limits set CLIENT entitled=500/s")),
    card("Bans", "c6", bans.element, h("p", { class: "quiet small" }, "Bans hold for MQTT and for KPs of the smart space. A client is banned on its own page; users and networks with  tidegate ban add --network 10.1.2.0/24")),
    whatIf.element,
    card("Changes by operators", "", audit.element)));
  const ask = async () => {
    limits.update((await get("limits")).limits, (row) => `${row.kind} ${row.name}`);
    bans.update((await get("bans")).bans, (row) => `${row.client} ${row.user} ${row.network}`);
    audit.update((await get("audit")).changes.map((row, place) => ({ ...row, place })), (row) => `${row.at} ${row.method} ${row.path} ${row.place}`);
  };
  const end = repeat(5, ask, (failure) => set(problem, failure ? failure.message : ""));
  return () => { end(); whatIf.end(); };
}

export const limits = { title: "Limits", show };
