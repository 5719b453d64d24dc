import { h, set, card, number, bytes, delay, Table, stateBadge, clientLink } from "./dom.js";
import { get, send, repeat } from "./api.js";

const SORTS = [["trouble", "trouble"], ["rate", "rate"], ["delay", "delay"], ["queue", "queue"], ["drops", "lost"], ["refused", "refused"], ["received", "received"],
  ["delivered", "delivered"], ["subscriptions", "subscriptions"], ["state", "state"], ["id", "name"]];
const STATES = [["", "all"], ["ok", "ok"], ["slow", "slow"], ["losing", "losing"], ["slowed", "slowed"], ["backed-off", "backed-off"], ["paused", "paused"],
  ["away", "away"], ["closed", "closed connections"]];

function options(list, chosen) {
  return list.map(([value, words]) => h("option", { value, selected: value === chosen }, words));
}

// What the classes of the defaults mean; others are named by whoever made them.
const CLASSES = { high: "rare: served first where something is scarce", normal: "between rare and chatty",
  low: "chatty: served last where something is scarce" };
function className(name) {
  return h("span", { title: CLASSES[name] ?? null }, name ?? "–");
}

// Rate against the rhythm that was learned, as a bar: full at four times the usual.
function rhythm(row) {
  if (row.rate === null) return "–";
  const factor = row.learned_rate ? row.rate / row.learned_rate : null;
  const fill = h("i");
  fill.style.width = `${Math.min(100, (factor ?? 0) * 25).toFixed(0)}%`;
  return h("div", {}, `${number(row.rate)} of ${number(row.learned_rate)}`,
    factor === null ? null : h("div", { class: `bar ${factor > 2 ? "hot" : ""}`, "aria-hidden": "true" }, fill));
}

function list(place, context) {
  let sort = "trouble";
  const filter = h("select", { id: "state" }, options(STATES, ""));
  const order = h("select", { id: "sort" }, options(SORTS, sort));
  const search = h("input", { id: "search", type: "search", placeholder: "part of a name, or a whole one" });
  const words = h("p", { class: "quiet small", role: "status" }, "");
  const problem = h("p", { class: "error", role: "alert" }, "");
  const table = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "State", node: (row) => stateBadge(row.state), state: (row) => row.state },
    { title: "Class", node: (row) => className(row.class), state: (row) => row.class ?? "–" },
    { title: "Rate of learned /s", num: true, node: rhythm, state: (row) => `${row.rate} ${row.learned_rate}` },
    { title: "Delay", num: true, text: (row) => delay(row.delay_ms) },
    { title: "Held", num: true, text: (row) => number(row.held) },
    { title: "Queue", num: true, text: (row) => number(row.queue_messages) },
    { title: "Refused", num: true, text: (row) => number(row.refused) },
    { title: "Lost", num: true, text: (row) => number(row.drops) },
    { title: "In", num: true, text: (row) => number(row.received) },
    { title: "Out", num: true, text: (row) => number(row.delivered) },
    { title: "Address", text: (row) => row.address },
  ], { empty: "No such client." });
  const closed = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "Closed", text: (row) => row.closed_at },
    { title: "Reason", kind: "long", text: (row) => row.reason },
    { title: "Refused", num: true, text: (row) => number(row.refused) },
    { title: "Lost", num: true, text: (row) => number(row.drops) },
    { title: "In", num: true, text: (row) => number(row.received) },
    { title: "Out", num: true, text: (row) => number(row.delivered) },
    { title: "Address", text: (row) => row.address },
  ], { empty: "No connection has ended." });
  const holder = h("div");
  set(place, card(null, "", h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); open(); } },
    h("label", { for: "search" }, "Search", search), h("label", { for: "state" }, "State", filter),
    h("label", { for: "sort" }, "Largest first, by", order), h("button", { type: "submit" }, "Open this name")),
    problem, words, holder));
  const open = () => { if (search.value) location.hash = `#/clients/${encodeURIComponent(search.value)}`; };
  const ask = async () => {
    const isClosed = filter.value === "closed";
    // What is searched for may be anywhere in the order: the most that is told at once.
    const limit = search.value ? 1000 : 100;
    const answer = await get("clients", { sort: order.value, state: filter.value, limit });
    const rows = answer.clients.filter((row) => row.client_id.toLowerCase().includes(search.value.toLowerCase()));
    set(holder, isClosed ? closed.element : table.element);
    if (isClosed) closed.update(rows, (row) => `${row.client_id} ${row.closed_at} ${row.address}`);
    else table.update(rows, (row) => row.client_id);
    const total = answer.total ?? answer.clients.length;
    set(words, search.value ? `${rows.length} of the first ${answer.clients.length} (${total} in all) match.`
      : `${rows.length} of ${total} shown.`);
  };
  const turn = () => ask().catch((failure) => set(problem, failure.message));
  for (const element of [filter, order]) element.addEventListener("change", turn);
  search.addEventListener("input", turn);
  return repeat(2, ask, (failure) => set(problem, failure ? failure.message : ""));
}

function one(place, context, id) {
  const why = h("pre", { tabindex: "0" }, "…");
  const facts = h("div");
  const problem = h("p", { class: "error", role: "alert" }, "");
  const rate = h("input", { id: "rate", value: "", placeholder: "500/s", size: 8 });
  const time = h("select", { id: "time" }, options([["600", "10 minutes"], ["3600", "1 hour"], ["86400", "1 day"]], "3600"));
  const path = `clients/${encodeURIComponent(id)}`;
  const actions = context.may("operator") ? card("Do something about it", "c4",
    h("div", { class: "row" }, h("label", { for: "rate" }, "Messages, such as 500/s", rate),
      h("button", { type: "button", onclick: () => context.act(`${id} may publish ${rate.value}`, () =>
        send("PUT", "limits", { client: id, rate: rate.value })) }, "Limit"),
      h("button", { type: "button", onclick: () => context.act(`${id} has no limit any more`, () =>
        send("DELETE", `limits?client=${encodeURIComponent(id)}`)) }, "No limit")),
    h("div", { class: "row" }, h("label", { for: "time" }, "Keep out for", time),
      h("button", { type: "button", class: "danger", onclick: () => context.act(`${id} is kept out`, () =>
        send("POST", "bans", { client: id, seconds: Number(time.value), reason: "by the dashboard" })) }, "Ban"),
      h("button", { type: "button", onclick: () => context.act(`${id} may come in again`, () =>
        send("DELETE", `bans?client=${encodeURIComponent(id)}`)) }, "Let in")),
    h("button", { type: "button", class: "danger", id: "kick", onclick: () => context.act(`${id} was disconnected`, () =>
      send("DELETE", path)) }, "End its connection"))
    : card("Do something about it", "c4", h("p", { class: "quiet" }, "This needs the role operator."));
  set(place, h("p", {}, h("a", { href: "#/clients" }, "All clients")), problem, h("div", { class: "grid" },
    card(`Why: ${id}`, "c8", why), actions, card("What is known of it", "", facts)));
  return repeat(2, async () => {
    const answer = await get(`${path}/why`);
    if (why.textContent !== answer.text) set(why, answer.text);
    const row = answer.client;
    // What `why` would propose: the usual rate with room.
    if (!rate.value && row?.learned_rate) rate.value = `${Math.ceil(2 * row.learned_rate)}/s`;
    if (!row) return set(facts, h("p", { class: "quiet" }, "It was never let in."));
    const filters = (row.filters ?? []).map((it) => h("li", {}, `${it.filter} (QoS ${it.qos})`));
    set(facts, h("div", { class: "figures" }, [
      ["state", stateBadge(answer.state)], ["user", row.user ?? "–"], ["address", row.address], ["listener", row.listener],
      ["protocol", row.protocol ? `MQTT ${row.protocol}` : "–"], ["class", className(row.class)],
      ["since", row.connected_since ?? "–"], ["queue", `${number(row.queue_messages)} (${bytes(row.queue_bytes)})`],
      ["bytes in, out", `${bytes(row.bytes_received)}, ${bytes(row.bytes_sent)}`],
    ].map(([name, value]) => h("div", { class: "figure" }, value, h("br"), h("span", {}, name)))),
    filters.length ? [h("h3", {}, "Subscriptions"), h("ul", {}, filters)] : null);
  }, (failure) => { set(problem, failure ? failure.message : ""); if (failure) set(why, ""); });
}

export const clients = { title: "Clients", show: (place, context, id) => (id ? one : list)(place, context, id) };
