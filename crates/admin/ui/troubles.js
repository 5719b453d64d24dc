// The first thing to see: one sentence, and under it a card for each one who floods, loses or is banned, the worst first.

import { h, set, clientLink, number, span } from "./dom.js";
import { get, send } from "./api.js";
import { whyCard } from "./why.js";
import { bridgeWhy } from "./bridges.js";

const KINDS = { floods: "bad", loses: "bad", slow: "warn", "name used twice": "bad", "bridge down": "bad", waits: "warn", unusual: "quiet" };
const BANS_SHOWN_MAX = 4;

// One who is in trouble. What was opened stays open while the words change.
class TroubleCard {
  constructor(context, trouble, isOpen) {
    const { bridge, client } = trouble;
    this.why = bridge === undefined ? whyCard(context, client) : bridgeWhy(context, bridge);
    this.words = h("p", {}, "");
    this.badge = h("span", { class: "badge" }, "");
    this.more = h("button", { type: "button", "aria-expanded": "false", onclick: () => this.open(this.why.element.hidden) }, "");
    this.element = h("article", { class: "card trouble", "aria-label": client ?? bridge },
      h("div", { class: "row head" }, this.badge, h("strong", {}, bridge === undefined ? clientLink(client) : h("a", { href: "#/bridges" }, bridge)), this.more), this.words, this.why.element);
    this.open(isOpen);
    this.show(trouble);
  }

  show({ kind, text }) {
    const color = KINDS[kind] ?? "warn";
    if (this.badge.textContent !== kind) { set(this.badge, kind); this.badge.className = `badge ${color}`; this.element.className = `card trouble edge-${color}`; }
    if (this.words.textContent !== text) this.words.textContent = text;
    if (!this.why.element.hidden) this.why.ask();
  }

  open(isOpen) {
    this.why.element.hidden = !isOpen;
    this.more.setAttribute("aria-expanded", String(isOpen));
    set(this.more, isOpen ? "Fold" : "Why, and what to do");
    if (isOpen) this.why.ask();
  }
}

// What somebody who is kept out does about it.
export function tries(ban) {
  if (!ban.tries) return "It has not tried to come in since.";
  return `It has tried to come in ${ban.tries === 1 ? "once" : `${number(ban.tries)} times`} since, the last time ${span(ban.last_try_s)} ago.`;
}

function banCard(context, ban, again) {
  const who = [ban.client && `client ${ban.client}`, ban.user && `user ${ban.user}`, ban.network].filter(Boolean).join(", ");
  const words = new URLSearchParams(Object.entries(ban).filter(([name]) => ["client", "user", "network"].includes(name)));
  const remove = async () => { await context.act(`${who} may come in again`, () => send("DELETE", `bans?${words}`),
    () => context.act(`${who} is kept out again`, () => send("POST", "bans", { ...Object.fromEntries(words), seconds: Math.max(1, ban.left_s), reason: ban.reason }))); again(); };
  return h("article", { class: "card trouble edge-quiet", "aria-label": who }, h("div", { class: "row head" }, h("span", { class: "badge quiet" }, "banned"),
    h("strong", {}, ban.client ? clientLink(ban.client) : who),
    context.may("operator") ? h("button", { type: "button", onclick: remove }, "Let in again") : null),
  h("p", {}, `${who} is kept out for ${span(ban.left_s)} more: ${ban.reason}. ${tries(ban)}`));
}

export class Troubles {
  constructor(context) {
    this.context = context;
    this.cards = new Map();
    this.sentence = h("p", { id: "sentence", role: "status" }, "");
    this.next = h("p", { class: "small quiet" }, "");
    this.alarms = h("details", { class: "small", hidden: true });
    this.list = h("div", { class: "troubles", id: "troubles" });
    this.bans = h("div", { class: "troubles" });
    this.rest = h("p", { class: "small quiet", hidden: true });
    this.top = h("section", { class: "card sentence", "aria-label": "What is wrong" }, this.sentence, this.next, this.alarms);
    this.element = h("div", {}, this.top, this.list, this.bans, this.rest);
  }

  show(tick) {
    const { now, bans } = tick;
    const words = JSON.stringify(now);
    if (words !== this.said) {
      this.said = words;
      this.say(now);
    }
    if (bans > 0 || this.hasBans) this.askBans(bans);
  }

  say(now) {
    const color = { calm: "good", notice: "warn" }[now.mood] ?? "bad";
    this.sentence.className = color;
    this.top.className = `card sentence edge-${color}`;
    if (this.sentence.textContent !== now.text) set(this.sentence, now.text);
    const troubles = now.troubles ?? [];
    set(this.next, now.next ? ["Type: ", h("code", {}, now.next)] : null, now.client && !troubles.length ? [" or look at ", clientLink(now.client)] : null);
    const isOpen = this.alarms.open;
    set(this.alarms, h("summary", {}, `${now.alarms.length} ${now.alarms.length === 1 ? "alarm" : "alarms"}`),
      h("ul", { id: "alarms" }, now.alarms.map((alarm) => h("li", {}, `since ${alarm.since}, ${alarm.kind}: ${alarm.text}`))));
    Object.assign(this.alarms, { open: isOpen, hidden: now.alarms.length === 0 });
    const seen = new Set();
    let before = null;
    troubles.forEach((trouble, place) => {
      const key = `${trouble.kind} ${trouble.client ?? trouble.bridge}`;
      if (seen.has(key)) return;
      seen.add(key);
      let card = this.cards.get(key);
      // The worst one is opened: what to do about it is in sight.
      if (card) card.show(trouble);
      else this.cards.set(key, card = new TroubleCard(this.context, trouble, place === 0 && this.cards.size === 0));
      const next = before ? before.nextSibling : this.list.firstChild;
      if (next !== card.element) this.list.insertBefore(card.element, next);
      before = card.element;
    });
    for (const [key, card] of this.cards) if (!seen.has(key)) { card.element.remove(); this.cards.delete(key); }
    const rest = (now.troubled ?? 0) - troubles.length;
    this.rest.hidden = rest <= 0;
    set(this.rest, `and ${rest} more: `, h("a", { href: "#/clients" }, "all clients, those in trouble first"));
  }

  async askBans(count) {
    if (count === this.hasBans && Date.now() - this.askedBans < 10000) return;
    [this.hasBans, this.askedBans] = [count, Date.now()];
    try {
      const { bans } = await get("bans");
      set(this.bans, bans.slice(0, BANS_SHOWN_MAX).map((ban) => banCard(this.context, ban, () => { this.hasBans = -1; })),
        bans.length > BANS_SHOWN_MAX ? h("p", { class: "small" }, h("a", { href: "#/limits" }, `and ${bans.length - BANS_SHOWN_MAX} more bans`)) : null);
    } catch { this.hasBans = -1; }
  }
}
