// One client: why it is as it is, what to do about it, and its last hour as far as somebody has looked.

import { h, set, card, number, bytes, stateBadge } from "./dom.js";
import { get, repeat } from "./api.js";
import { actions, TIMES } from "./actions.js";
import { whyCard } from "./why.js";
import { Chart, ChartGroup } from "./chart.js";
import { logCard } from "./log.js";

// Looks at clients that are remembered while the page is open: an hour of one every two seconds, for so many.
const LOOKS_MAX = 1800, CLIENTS_MAX = 16;
// Seconds without a look after which nobody knows what was in between.
const GAP_S = 60;
const looks = new Map();

// What the classes of the defaults mean; others are named by whoever made them.
const CLASSES = { high: "rare: served first where something is scarce", normal: "between rare and chatty",
  low: "chatty: served last where something is scarce" };
export function className(name) {
  return h("span", { title: CLASSES[name] ?? null }, name ?? "–");
}

function note(id, row) {
  const list = looks.get(id) ?? [];
  looks.delete(id);
  looks.set(id, list);
  if (looks.size > CLIENTS_MAX) looks.delete(looks.keys().next().value);
  const at = Date.now() / 1000, before = list[list.length - 1];
  const rate = (name) => (before && at - before.at > GAP_S ? null : before && row[name] >= before[name] ? (row[name] - before[name]) / Math.max(0.1, at - before.at) : 0);
  list.push({ at, received: row.received ?? 0, delivered: row.delivered ?? 0, drops: row.drops ?? 0, refused: row.refused ?? 0,
    sends: rate("received"), takes: rate("delivered"), loses: rate("drops"), isRefused: rate("refused"),
    usual: row.learned_rate ?? null, queue: row.queue_messages ?? 0 });
  if (list.length > LOOKS_MAX) list.shift();
  return list;
}

// A point without values where nobody looked: a line that goes on there would say what nobody knows.
function withGaps(list) {
  return list.flatMap((it, place) => (place && it.at - list[place - 1].at > GAP_S ? [{ at: list[place - 1].at + 1 }, it] : [it]));
}

function buttons(context, id, rate) {
  if (!context.may("operator")) return card("Do something about it", "c4", h("p", { class: "quiet" }, "This needs the role operator."));
  const doing = actions(context, id);
  const time = h("select", { id: "time" }, TIMES.map(([value, words]) => h("option", { value, selected: value === "3600" }, words)));
  return card("Do something about it", "c4",
    h("div", { class: "row" }, h("label", { for: "rate" }, "Messages, such as 500/s", rate),
      h("button", { type: "button", onclick: () => doing.limit(rate.value) }, "Limit"),
      h("button", { type: "button", onclick: () => doing.unlimit() }, "No limit")),
    h("div", { class: "row" }, h("label", { for: "time" }, "Keep out for", time),
      h("button", { type: "button", class: "danger", onclick: () => doing.ban(Number(time.value)) }, "Ban"),
      h("button", { type: "button", onclick: () => doing.unban() }, "Let in")),
    h("div", { class: "row" }, h("button", { type: "button", class: "danger", id: "kick", onclick: () => doing.kick() }, "End its connection"),
      h("button", { type: "button", class: "danger", id: "end-session", onclick: () => doing.endSession() }, "End its session")));
}

function facts(answer, row) {
  const filters = (row.filters ?? []).map((it) => h("li", {}, `${it.filter} (QoS ${it.qos})`));
  return [h("div", { class: "figures" }, [
    ["state", stateBadge(answer.state)], ["user", row.user ?? "–"], ["address", row.address], ["listener", row.listener],
    ["protocol", row.protocol ? `MQTT ${row.protocol}` : "–"], ["class", className(row.class)],
    ["since", row.connected_since ?? "–"], ["queue", `${number(row.queue_messages)} (${bytes(row.queue_bytes)})`],
    ["bytes in, out", `${bytes(row.bytes_received)}, ${bytes(row.bytes_sent)}`],
  ].map(([name, value]) => h("div", { class: "figure" }, value, h("br"), h("span", {}, name)))),
  filters.length ? [h("h3", {}, "Subscriptions"), h("ul", {}, filters)] : null];
}

export function client(place, context, id) {
  const why = whyCard(context, id);
  const known = h("div");
  const log = logCard(context, "What it does, line by line", "", () => ({ client: id }));
  const rate = h("input", { id: "rate", value: "", placeholder: "500/s", size: 8 });
  const group = new ChartGroup();
  const flow = new Chart([{ name: "it sends", color: 1 }, { name: "its usual rate", color: 2, dash: true }, { name: "it takes", color: 3 }],
    { label: "Messages of this client per second", group });
  const trouble = new Chart([{ name: "lost", color: 5 }, { name: "refused", color: 2, dash: true }, { name: "waiting for it", color: 4 }],
    { label: "What this client loses, and what waits for it", group });
  set(place, h("p", {}, h("a", { href: "#/clients" }, "All clients")), h("div", { class: "grid" },
    card(`Why: ${id}`, "c8", why.element), buttons(context, id, rate),
    card("Its messages per second, up to an hour", "c6", flow.element),
    card("Lost and refused per second; waiting", "c6", trouble.element), card("What is known of it", "", known), log.element));
  // What the broker has kept of it, before this page looked.
  let before = [];
  const keep = async () => {
    const { fields, points } = await get(`clients/${encodeURIComponent(id)}/history`);
    const value = (point, name) => point[fields.indexOf(name)];
    before = points.map((point) => ({ at: value(point, "at"), sends: value(point, "received"), takes: value(point, "delivered"), loses: value(point, "lost"),
      isRefused: value(point, "refused"), usual: value(point, "usual"), queue: value(point, "queued") }));
  };
  keep().catch(() => {});
  const end = repeat(2, async () => {
    const answer = await why.ask();
    const row = answer?.client;
    // What `why` proposes, else the usual rate with room.
    const proposed = answer?.proposals?.flatMap((it) => it.acts).find((act) => act.kind === "limit")?.rate;
    if (!rate.value) rate.value = proposed ?? (row?.learned_rate ? `${Math.ceil(2 * row.learned_rate)}/s` : "");
    if (!row) return set(known, answer ? h("p", { class: "quiet" }, answer.kps ? "It is a KP of the smart space." : "It was never let in.") : null);
    set(known, facts(answer, row));
    const own = note(id, row).slice(1);
    const list = withGaps([...before.filter((it) => !own.length || it.at < own[0].at), ...own]);
    const column = (name) => list.map((it) => it[name] ?? null);
    flow.draw(column("at"), [column("sends"), column("usual"), column("takes")]);
    trouble.draw(column("at"), [column("loses"), column("isRefused"), column("queue")]);
  });
  return () => { end(); log.end(); };
}
