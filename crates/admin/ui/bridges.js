// The bridges to other brokers: how each stands, what waits for it, how fast it may go, and what is wrong.

import { h, set, card, figure, number, bytes, span, stateBadge } from "./dom.js";
import { get, repeat } from "./api.js";
import { whyCard } from "./why.js";

const COUNTS = [["sent", "sent"], ["received", "received"], ["deferred", "refused for now, sent again"], ["refused", "refused there for good"],
  ["refused_here", "refused here for good"], ["looped", "through too many bridges"], ["unmapped", "of topics that are gone"],
  ["too_large", "too large"], ["lost", "QoS 0, lost with a connection"]];

// What was said of a bridge, with what to do.
export const bridgeWhy = (context, name) => whyCard(context, name, `bridges/${encodeURIComponent(name)}`);

const millis = (ms) => (ms === null ? "–" : `${number(ms)} ms`);

// One bridge; its place stays while its numbers change.
class BridgeCard {
  constructor(context, name) {
    this.badge = h("span");
    this.words = h("span", { class: "quiet" }, "");
    this.figures = { queued: figure("messages wait"), rate: figure("sent /s"), window: figure("under way, of its window"), latency: figure("an answer takes") };
    this.bar = h("div", { class: "bar" }, h("i"));
    this.spool = h("p", { class: "quiet small" }, "");
    this.counts = h("p", { class: "quiet small" }, "");
    this.why = bridgeWhy(context, name);
    this.element = h("article", { class: "card", "aria-label": `Bridge ${name}` }, h("div", { class: "row head" }, this.badge, h("strong", {}, name), this.words),
      h("div", { class: "figures" }, Object.values(this.figures).map((it) => it.element)), h("div", { class: "spool" }, this.bar, this.spool), this.why.element, this.counts);
  }

  show(bridge) {
    set(this.badge, stateBadge(bridge.state));
    set(this.words, `${bridge.state === "up" ? "to" : "tries"} ${bridge.address}, for ${span(bridge.age_s)}`,
      bridge.next_try_s === null ? null : `; again in ${span(bridge.next_try_s)}`);
    const at = Date.now() / 1000, { before } = this;
    this.before = { at, sent: bridge.sent };
    if (before && at > before.at) this.figures.rate.set(number(Math.max(0, bridge.sent - before.sent) / (at - before.at)));
    const part = bridge.queued_bytes / Math.max(1, bridge.spool_bytes_max);
    this.figures.queued.set(number(bridge.queued), part > 0.8 && "bad");
    this.figures.window.set(`${number(bridge.under_way)} of ${number(bridge.window)}`);
    this.figures.latency.set(millis(bridge.latency_ms), bridge.latency_ms > 1.5 * bridge.base_latency_ms && "warn");
    this.bar.firstChild.style.width = `${Math.min(100, part * 100).toFixed(1)}%`;
    this.bar.classList.toggle("hot", part > 0.8);
    set(this.spool, `Spool: ${bytes(bridge.queued_bytes)} of ${bytes(bridge.spool_bytes_max)} (${(part * 100).toFixed(0)} %)`);
    set(this.counts, COUNTS.filter(([name]) => bridge[name] > 0).map(([name, words]) => `${number(bridge[name])} ${words}`).join(", "));
    this.why.ask();
  }
}

function show(place, context) {
  const problem = h("p", { class: "error", role: "alert" }, "");
  const none = card(null, "", h("p", {}, "No bridges. A block ", h("code", {}, "[[bridge]]"), " in the configuration makes one:"),
    h("pre", {}, '[[bridge]]\nname = "hub"\naddress = ["10.0.0.5:1883"]\n\n[[bridge.topic]]\nfilter = "sensors/#"\nqos = 1'),
    h("p", { class: "quiet" }, "What is to go out waits here while the other broker cannot be reached, and drains at the pace that it bears. ",
      h("code", {}, "tidegate import mosquitto.conf"), " makes bridges of mosquitto's connections."));
  const cards = new Map(), list = h("div", { class: "troubles", id: "bridges" });
  set(place, problem, list);
  return repeat(2, async () => {
    const { bridges } = await get("bridges");
    if (!bridges.length) return set(list, none);
    for (const bridge of bridges) {
      if (!cards.has(bridge.name)) {
        cards.set(bridge.name, new BridgeCard(context, bridge.name));
        list.append(cards.get(bridge.name).element);
      }
      cards.get(bridge.name).show(bridge);
    }
  }, (failure) => set(problem, failure ? failure.message : ""));
}

export const bridges = { title: "Bridges", show };
