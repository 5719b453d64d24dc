// Why a client is as it is: facts as a list, and each proposal with the buttons that do what its command says.

import { h, set, stateBadge } from "./dom.js";
import { get } from "./api.js";
import { actions } from "./actions.js";

const LABELS = { limit: (act) => `Limit to ${act.rate}`, entitle: (act) => `Entitle to ${act.rate}`, unlimit: () => "Take the limit away",
  ban: () => "Ban for 1 hour", kick: () => "End its connection", endSession: () => "End its session", why: (act) => `Look at ${act.client}` };
const DANGERS = ["ban", "kick", "endSession"];
const COMMAND = /\s{2,}(tidegate .*?)(?=\s{2,}|$)/g;

// "to slow it:  tidegate a   or keep it away:  tidegate b" is words, and commands to type.
function parts(text) {
  const commands = [...text.matchAll(COMMAND)].map((match) => match[1]);
  const first = text.search(/\s{2,}tidegate /);
  return { words: first < 0 ? text : text.slice(0, first).replace(/:$/, ""), commands };
}

function proposal(context, id, { text, acts }, again) {
  const { words, commands } = parts(text);
  const doing = actions(context, id);
  const button = (act) => {
    if (act.kind === "why") return h("a", { class: "button", href: `#/clients/${encodeURIComponent(act.client)}` }, LABELS.why(act));
    const run = async () => { if (await doing[act.kind](act.rate)) again(); };
    return h("button", { type: "button", class: DANGERS.includes(act.kind) ? "danger" : "main", "data-act": act.kind, onclick: run }, LABELS[act.kind](act));
  };
  const may = context.may("operator");
  const buttons = acts.filter((act) => LABELS[act.kind] && (may || act.kind === "why")).map(button);
  return h("li", {}, h("span", {}, `${words.charAt(0).toUpperCase()}${words.slice(1)}.`), buttons.length ? h("span", { class: "row" }, buttons) : null,
    commands.length ? h("details", { class: "small" }, h("summary", {}, "or type"), commands.map((command) => h("code", { class: "line" }, command))) : null);
}

// The first fact without the client's name and address, which stand above it.
function headline(fact) {
  const rest = fact.replace(/^(?:client "(?:[^"\\]|\\.)*" \([^)]*\)|bridge "(?:[^"\\]|\\.)*") /, "");
  return `${rest.charAt(0).toUpperCase()}${rest.slice(1)}`;
}

// Of a client, or of what else has a place that says why.
export function whyCard(context, id, place) {
  const element = h("div", { class: "why" }, h("p", { class: "quiet" }, "…"));
  let said = "";
  const draw = (answer) => {
    const now = JSON.stringify([answer.facts, answer.proposals, answer.text]);
    // What has the focus, or is open, stays as it is unless something else is to be said.
    if (now === said || (said && element.contains(document.activeElement))) return;
    const open = new Set([...element.querySelectorAll("details[open]")].map((it) => it.textContent));
    said = now;
    const [first = "", ...rest] = answer.facts ?? answer.text.split("\n");
    const losses = rest.filter((fact) => /^\s*\d+ \w+: /.test(fact));
    const facts = rest.filter((fact) => !losses.includes(fact));
    const isBanned = answer.state === "banned" && context.may("operator");
    const unban = isBanned ? h("button", { type: "button", class: "main", onclick: async () => { await actions(context, id).unban(); ask(); } }, "Let it in again") : null;
    // Who does harm without being held back is not called well.
    const isHarmless = answer.state !== "ok" || !(answer.fills?.length || answer.factor > 2);
    set(element, h("p", { class: "lead" }, isHarmless && !place ? [stateBadge(answer.state), " "] : null, headline(first.trim())),
      h("ul", { class: "facts" }, facts.map((fact) => h("li", {}, fact.trim()))),
      losses.length ? h("details", { class: "small" }, h("summary", {}, `What was lost or refused, by reason (${losses.length})`), h("ul", {}, losses.map((fact) => h("li", {}, fact.trim())))) : null,
      unban, answer.proposals?.length ? [h("h3", {}, "What to do"), h("ul", { class: "steps" }, answer.proposals.map((it) => proposal(context, id, it, ask)))] : null);
    for (const details of element.querySelectorAll("details")) details.open = open.has(details.textContent);
  };
  const ask = async () => {
    try {
      const answer = await get(place ?? `clients/${encodeURIComponent(id)}/why`);
      draw(answer);
      return answer;
    } catch (problem) {
      said = "";
      set(element, h("p", { class: "error" }, problem.message));
      return null;
    }
  };
  return { element, ask };
}
