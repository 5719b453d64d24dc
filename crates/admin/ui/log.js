// Follows one client, or the messages of a topic: what is done, line by line, while somebody looks. Off until asked for.

import { h, set, card } from "./dom.js";
import { get, send, repeat } from "./api.js";

// Lines that are kept on the page: what one looks over.
const LINES_MAX = 200;

const MOODS = { lost: "bad", refused: "bad", denied: "bad", banned: "bad", queued: "warn", slowed: "warn", disconnected: "warn", held: "warn", unread: "warn" };

function row(line) {
  const mood = MOODS[line.outcome] ?? MOODS[line.what] ?? "";
  return h("li", { class: mood || null }, h("time", { datetime: line.at }, line.at.slice(11, 23)), " ", h("b", {}, line.client), " ", line.text);
}

// `whom` says what to follow when it begins: { client, topic }.
export function logCard(context, title, size, whom, ...fields) {
  if (!context.may("operator")) return { element: card(title, size, h("p", { class: "quiet" }, "This needs the role operator.")), end: () => {} };
  const words = h("p", { class: "quiet small", role: "status" }, "Nothing is written down until you follow it. Payloads are never shown.");
  const list = h("ol", { class: "log", tabindex: 0, "aria-label": title });
  const button = h("button", { type: "submit" }, "Follow");
  let end = null, isLeft = false, count = 0, missed = 0;
  const stop = (why) => {
    end?.();
    end = null;
    set(button, "Follow");
    if (why) set(words, why);
  };
  const look = async (key) => {
    const answer = await get("log", { log: key });
    count += answer.lines.length;
    missed += answer.missed;
    const isBelow = list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
    list.append(...answer.lines.slice(-LINES_MAX).map(row));
    while (list.childNodes.length > LINES_MAX) list.firstChild.remove();
    // Who has scrolled up reads there.
    if (isBelow) list.scrollTop = list.scrollHeight;
    if (count + missed === 0) return set(words, "Nothing yet.");
    set(words, `${count} lines${missed ? `, and ${missed} for which there was no room` : ""}; the last ${LINES_MAX} are shown.`);
  };
  const begin = async () => {
    button.disabled = true;
    const { log } = await send("POST", "log", whom()).finally(() => { button.disabled = false; });
    // Who has gone to another page meanwhile does not follow it.
    if (isLeft) return;
    set(list);
    [count, missed] = [0, 0];
    set(button, "Stop");
    set(words, "Nothing yet.");
    end = repeat(1, () => look(log), (failure) => { if (failure) stop(failure.message); });
  };
  const submit = async (event) => {
    event.preventDefault();
    if (end) return stop();
    try { await begin(); } catch (failure) { set(words, failure.message); }
  };
  const form = h("form", { class: "row", onsubmit: submit }, fields, button);
  return { element: card(title, size, form, words, list), end: () => { isLeft = true; stop(); } };
}
