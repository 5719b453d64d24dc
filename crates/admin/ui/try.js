// Publish and subscribe from the page: a client of the broker like any other, with the rights of the user that is given.

import { h, set, card, bytes, confirmed } from "./dom.js";
import { Mqtt } from "./mqtt.js";

// Messages that are shown, and letters of each: what comes faster pushes out the oldest.
const SHOWN_MAX = 100, LETTERS_MAX = 500, PAYLOAD_MAX = 32768;
const DRAW_MS = 200;
// One connection for the page, whoever needs it; it ends with the page, or by its button.
let connection = null, messages = [], received = 0, filters = new Set();
const views = new Set();
const redraw = () => views.forEach((view) => view());
// What comes in a burst is drawn once.
let later = 0;
const redrawSoon = () => { later ||= setTimeout(() => { later = 0; redraw(); }, DRAW_MS); };

async function open(user, password) {
  const made = new Mqtt({
    onmessage: (message) => { received += 1; messages = [{ ...message, at: new Date() }, ...messages.slice(0, SHOWN_MAX - 1)]; redrawSoon(); },
    onend: (words) => { if (connection === made) { connection = null; filters.clear(); state = words; redraw(); } },
  });
  await made.connect({ clientId: `page-${Math.random().toString(36).slice(2, 8)}`, user, password });
  connection = made;
  state = user ? `connected as ${user}` : "connected without a user";
  redraw();
  return made;
}
let state = "not connected";

// Takes a retained message away: an empty one in its place, as MQTT has it.
export async function removeRetained(context, topic) {
  if (!await confirmed(`Delete the retained message of “${topic}”? Later subscribers will not get it. This cannot be undone.`, "Delete", true)) return null;
  return context.act(`The retained message of “${topic}” is gone`, async () => {
    const link = connection ?? await open().catch((problem) => { throw new Error(`${problem.message}. Connect below as a user who may publish to this topic.`); });
    await link.publish(topic, "", { qos: 1, retain: true });
  });
}

function shown({ topic, payload, qos, retain, at }) {
  const words = new TextDecoder().decode(payload.subarray(0, LETTERS_MAX));
  return h("li", {}, h("div", { class: "small quiet" }, `${at.toLocaleTimeString()} `, h("strong", {}, topic), ` QoS ${qos}${retain ? ", retained" : ""}, ${bytes(payload.length)}`),
    h("div", { class: "payload" }, payload.length ? words + (payload.length > LETTERS_MAX ? " …" : "") : "(empty)"));
}

export function tryCard(context) {
  if (!context.may("operator")) return { element: card("Try it: publish and subscribe", "", h("p", { class: "quiet" }, "This needs the role operator.")), end: () => {} };
  const user = h("input", { id: "try-user", autocomplete: "username", size: 12, value: context.session.user ?? "" });
  const password = h("input", { id: "try-password", type: "password", autocomplete: "off", size: 12 });
  const words = h("span", { id: "try-state", class: "quiet small", role: "status" }, "");
  const problem = h("p", { class: "error", role: "alert" }, "");
  const filter = h("input", { id: "try-filter", value: "#", size: 22, spellcheck: "false" });
  const topic = h("input", { id: "try-topic", value: "test/hello", size: 22, spellcheck: "false" });
  const payload = h("textarea", { id: "try-payload", class: "low", maxlength: PAYLOAD_MAX, spellcheck: "false" });
  payload.value = "hello";
  const qos = h("select", { id: "try-qos" }, h("option", { value: "0" }, "0"), h("option", { value: "1", selected: true }, "1"));
  const retain = h("input", { id: "try-retain", type: "checkbox" });
  const list = h("ul", { class: "messages", id: "try-messages", "aria-label": "Messages that came" });
  const count = h("p", { class: "small quiet" }, "");
  const subscribed = h("div", { class: "row" });
  const attempt = (work) => async (event) => {
    event?.preventDefault();
    set(problem, "");
    try { await work(); } catch (failure) { set(problem, failure.message); }
    redraw();
  };
  const link = async () => connection ?? open(user.value, password.value);
  const connect = h("button", { type: "submit" }, "");
  const draw = () => {
    set(words, state);
    set(connect, connection ? "Disconnect" : "Connect");
    set(count, `${received} came${received > messages.length ? `, the last ${messages.length} are shown` : ""}.`);
    set(list, messages.map(shown));
    set(subscribed, [...filters].map((it) => h("button", { type: "button", "aria-label": `Unsubscribe from ${it}`, onclick: attempt(async () => {
      await connection?.unsubscribe(it);
      filters.delete(it);
    }) }, `${it} ✕`)), messages.length ? h("button", { type: "button", onclick: () => { messages = []; received = 0; redraw(); } }, "Clear") : null);
  };
  views.add(draw);
  draw();
  const element = card("Try it: publish and subscribe", "",
    h("p", { class: "quiet small" }, "A client of the broker like any other, with the rights of the user that you give (none: as an anonymous client). It ends with this page, and after half an hour."),
    h("form", { class: "row", onsubmit: attempt(async () => { if (connection) connection.close(); else await open(user.value, password.value); }) },
      h("label", { for: "try-user" }, "User", user), h("label", { for: "try-password" }, "Password", password), connect, words), problem,
    h("div", { class: "halves" },
      h("form", { onsubmit: attempt(async () => { await (await link()).publish(topic.value, payload.value, { qos: Number(qos.value), retain: retain.checked }); state = `published to ${topic.value}`; }) },
        h("h3", {}, "Publish"), h("label", { for: "try-topic" }, "Topic", topic), h("label", { for: "try-payload" }, "Payload", payload),
        h("div", { class: "row" }, h("label", { for: "try-qos" }, "QoS", qos), h("label", { class: "check", for: "try-retain" }, retain, " retain"), h("button", { type: "submit", class: "main", id: "try-publish" }, "Publish"))),
      h("div", {}, h("form", { onsubmit: attempt(async () => { const wanted = filter.value; await (await link()).subscribe(wanted, 1); filters.add(wanted); }) },
        h("h3", {}, "Subscribe"), h("div", { class: "row" }, h("label", { for: "try-filter" }, "Topic filter", filter), h("button", { type: "submit", class: "main", id: "try-subscribe" }, "Subscribe"))),
      subscribed, count, list)));
  return { element, end: () => views.delete(draw) };
}
