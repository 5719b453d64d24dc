// Everybody who is or was connected, and the KPs of the smart space.

import { h, set, card, number, bytes, delay, span, Table, troubleBadge, troubleWord, clientLink } from "./dom.js";
import { get, repeat } from "./api.js";
import { client, className } from "./client.js";

const SORTS = [["trouble", "trouble"], ["rate", "rate"], ["delay", "delay"], ["queue", "queue"], ["drops", "lost"], ["refused", "refused"], ["received", "received"],
  ["delivered", "delivered"], ["bytes", "bytes"], ["subscriptions", "subscriptions"], ["state", "state"], ["id", "name"]];
const STATES = [["", "all"], ["ok", "ok"], ["slow", "slow"], ["losing", "losing"], ["away-losing", "away, losing"], ["slowed", "slowed"], ["backed-off", "backed-off"], ["paused", "paused"],
  ["away", "away"], ["closed", "closed connections"]];

function options(list, chosen) {
  return list.map(([value, words]) => h("option", { value, selected: value === chosen }, words));
}

// Rate against the rhythm that was learned, as a bar: full at four times the usual.
function rhythm(row) {
  if (row.rate === null) return h("span", { "data-nothing": true }, "–");
  const factor = row.learned_rate ? row.rate / row.learned_rate : null;
  const fill = h("i");
  fill.style.width = `${Math.min(100, (factor ?? 0) * 25).toFixed(0)}%`;
  const words = row.learned_rate ? `${number(row.rate)} of ${number(row.learned_rate)}` : number(row.rate);
  return h("div", { title: factor === null ? "its usual rate is not known yet" : `${number(factor)} times its usual rate; the bar is full at four times` },
    words, factor === null ? null : h("div", { class: `bar ${factor > 2 ? "hot" : ""}`, "aria-hidden": "true" }, fill));
}

// A word or a number that may be the same in every row, in a telephone's row left out where it says nothing.
const count = (title, sort, of, format = number) => ({ title, sort, num: true, kind: "less", text: (row) => format(of(row)) });

function kpTable() {
  let sort = "refused", rows = [];
  const name = (row) => row.name ?? row.user ?? row.address;
  const order = { id: (one, other) => name(one).localeCompare(name(other)) };
  const key = (row) => `${row.name} ${row.user} ${row.address} ${row.door}`;
  const draw = () => table.update([...rows].sort(order[sort] ?? ((one, other) => other[sort] - one[sort])), key);
  const table = new Table([
    { title: "KP", sort: "id", kind: "name", node: (row) => clientLink(name(row)) },
    { title: "Protocol", text: (row) => row.door },
    { title: "Class", kind: "extra", text: (row) => row.class },
    { title: "Role", text: (row) => row.role },
    count("Requests", "requests", (row) => row.requests), count("Answered", "answered", (row) => row.answered),
    count("Refused", "refused", (row) => row.refused), count("Out of date", "outdated", (row) => row.outdated),
    count("Failed", "failed", (row) => row.failed),
    count("Beyond its limit", "limited", (row) => row.limited),
    { title: "Limit /s", num: true, kind: "extra", text: (row) => (row.limit_rate ? `${number(row.limit_rate)} (${row.limit_of})` : "–") },
    { title: "Handed over", sort: "delegated", num: true, kind: "less",
      text: (row) => (row.delegated ? `${number(row.delegated)} of ${number(row.delegable)}, checked every ${span(row.check_every_s)}` : "–") },
    count("Waits", "waited_mean_ms", (row) => row.waited_mean_ms, (ms) => (ms ? `${number(ms)} ms` : "–")),
    { title: "Silent for", sort: "silent_s", num: true, kind: "extra", text: (row) => span(row.silent_s) },
    { title: "Address", kind: "extra", text: (row) => row.address },
  ], { look: "compact", empty: "No KP has asked the smart space for anything yet.", sort,
    onsort: (wanted) => { sort = wanted; table.sorted(sort); draw(); } });
  return { element: table.element, show: (list) => { rows = list; draw(); } };
}

function list(place, { live }) {
  const filter = h("select", { id: "state" }, options(STATES, ""));
  const order = h("select", { id: "sort" }, options(SORTS, "trouble"));
  const search = h("input", { id: "search", type: "search", placeholder: "part of a name" });
  const words = h("p", { class: "quiet small", role: "status" }, "");
  const problem = h("p", { class: "error", role: "alert" }, "");
  const onsort = (wanted) => { order.value = wanted; turn(); };
  const table = new Table([
    { title: "Client", sort: "id", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "State", sort: "trouble", node: (row) => troubleBadge(live, row), state: (row) => troubleWord(live, row) },
    { title: "Class", kind: "extra", node: (row) => className(row.class), state: (row) => row.class ?? "–" },
    { title: "Rate of usual /s", sort: "rate", num: true, kind: "rate", node: rhythm, state: (row) => `${row.rate} ${row.learned_rate}` },
    count("Delay", "delay", (row) => row.delay_ms, delay),
    { title: "Held", num: true, kind: "less", text: (row) => number(row.held) },
    count("Queue", "queue", (row) => row.queue_messages), count("Refused", "refused", (row) => row.refused),
    count("Lost", "drops", (row) => row.drops),
    { title: "In", sort: "received", num: true, kind: "extra", text: (row) => number(row.received) },
    { title: "Out", sort: "delivered", num: true, kind: "extra", text: (row) => number(row.delivered) },
    { title: "Bytes", sort: "bytes", num: true, kind: "extra", text: (row) => bytes(row.bytes_received + row.bytes_sent) },
    { title: "Address", kind: "extra", text: (row) => row.address },
  ], { look: "compact", empty: "No such client.", sort: "trouble", onsort });
  const closed = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "Closed", text: (row) => row.closed_at },
    { title: "Reason", kind: "long", text: (row) => row.reason },
    { title: "Refused", num: true, kind: "less", text: (row) => number(row.refused) },
    { title: "Lost", num: true, kind: "less", text: (row) => number(row.drops) },
    { title: "In", num: true, kind: "extra", text: (row) => number(row.received) },
    { title: "Out", num: true, kind: "extra", text: (row) => number(row.delivered) },
    { title: "Address", kind: "extra", text: (row) => row.address },
  ], { look: "compact", empty: "No connection has ended." });
  const kps = kpTable();
  const kpWords = h("p", { class: "quiet small" }, "");
  const holder = h("div");
  const open = () => { if (search.value) location.hash = `#/clients/${encodeURIComponent(search.value)}`; };
  set(place, h("div", { class: "grid" }, card(null, "", h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); open(); } },
    h("label", { for: "search" }, "Search", search), h("label", { for: "state" }, "State", filter),
    h("label", { for: "sort" }, "Largest first, by", order), h("button", { type: "submit" }, "Open this name")),
  problem, words, holder), card("KPs of the smart space", "", kpWords, kps.element)));
  const ask = async () => {
    const isClosed = filter.value === "closed";
    // What is searched for may be anywhere in the order: the most that is told at once.
    const limit = search.value ? 1000 : 100;
    const answer = await get("clients", { sort: order.value, state: filter.value, limit });
    const rows = answer.clients.filter((row) => row.client_id.toLowerCase().includes(search.value.toLowerCase()));
    if (holder.firstChild !== (isClosed ? closed : table).element) set(holder, (isClosed ? closed : table).element);
    table.sorted(order.value);
    if (isClosed) closed.update(rows, (row) => `${row.client_id} ${row.closed_at} ${row.address}`);
    else table.update(rows, (row) => row.client_id);
    const total = answer.total ?? answer.clients.length;
    set(words, search.value ? `${rows.length} of the first ${answer.clients.length} (${total} in all) match.`
      : `${rows.length} of ${total} shown.`);
    const space = await get("kps");
    kps.show(space.kps.filter((row) => `${row.name} ${row.user} ${row.address}`.toLowerCase().includes(search.value.toLowerCase())));
    set(kpWords, space.total > space.kps.length ? `${space.kps.length} of ${space.total} are shown. ` : "",
      "Bans and limits hold for KPs, too: a limit counts requests. Handed over: subscriptions that a KP is asked to check by itself.");
  };
  const turn = () => ask().catch((failure) => set(problem, failure.message));
  for (const element of [filter, order]) element.addEventListener("change", turn);
  search.addEventListener("input", turn);
  return repeat(2, ask, (failure) => set(problem, failure ? failure.message : ""));
}

export const clients = { title: "Clients", show: (place, context, id) => (id ? client : list)(place, context, id) };
