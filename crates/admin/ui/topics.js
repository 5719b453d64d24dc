import { h, set, card, number, bytes, Table } from "./dom.js";
import { get, repeat } from "./api.js";
import { logCard } from "./log.js";
import { removeRetained, tryCard } from "./try.js";

const BRANCHES_MAX = 200;
// Lines that are unfolded when the page opens: as many as one looks over.
const OPEN_MAX = 24;

function grow(rows) {
  const root = { below: new Map(), rate: 0 };
  for (const { topic, rate } of rows) {
    let node = root;
    for (const level of topic.split("/")) {
      if (!node.below.has(level)) node.below.set(level, { below: new Map(), rate: 0 });
      node = node.below.get(level);
      node.rate += rate;
    }
    root.rate += rate;
  }
  root.most = root.rate;
  return root;
}

// Unfolds from the top, the busiest first, as long as there is room for all that is below.
function unfold(root, open) {
  let room = OPEN_MAX - root.below.size;
  const queue = [[root, null]];
  while (queue.length) {
    const [node, path] = queue.shift();
    const busiest = [...node.below].sort((one, other) => other[1].rate - one[1].rate);
    for (const [level, child] of busiest) {
      if (child.below.size === 0 || child.below.size > room) continue;
      const whole = path === null ? level : `${path}/${level}`;
      room -= child.below.size;
      open.add(whole);
      queue.push([child, whole]);
    }
  }
}

function draw(node, path, open, onpick) {
  const sorted = [...node.below].sort((one, other) => other[1].rate - one[1].rate);
  const lines = sorted.slice(0, BRANCHES_MAX).map(([level, child]) => {
    const whole = path === null ? level : `${path}/${level}`;
    const share = h("i");
    share.style.width = `${((100 * child.rate) / Math.max(node.most, 1e-9)).toFixed(0)}%`;
    const words = [level === "" ? "(empty level)" : level, h("span", { class: "n" }, `${number(child.rate)}/s`), h("span", { class: "bar", "aria-hidden": "true" }, share)];
    child.most = node.most;
    if (child.below.size === 0) return h("li", { class: "leaf" }, words);
    const details = h("details", {}, h("summary", {}, words));
    const fill = () => { if (details.childNodes.length === 1) details.append(draw(child, whole, open, onpick)); };
    if (open.has(whole)) { details.open = true; fill(); }
    details.addEventListener("toggle", () => { if (details.open) { open.add(whole); fill(); } else open.delete(whole); });
    return h("li", {}, details);
  });
  if (sorted.length > BRANCHES_MAX) lines.push(h("li", { class: "leaf quiet" }, `and ${sorted.length - BRANCHES_MAX} more`));
  return h("ul", { class: path === null ? "tree" : null }, lines);
}

function show(place, context) {
  const open = new Set();
  const words = h("p", { class: "quiet small" }, "");
  const tree = h("div");
  const problem = h("p", { class: "error", role: "alert" }, "");
  const filter = h("input", { id: "filter", value: "#", size: 30, spellcheck: "false" });
  const more = h("button", { type: "button", hidden: true }, "More");
  const note = h("p", { class: "quiet small", role: "status" }, "");
  const table = new Table([
    { title: "Topic", kind: "name", text: (row) => row.topic },
    { title: "QoS", num: true, text: (row) => row.qos },
    { title: "Bytes", num: true, text: (row) => bytes(row.bytes) },
    { title: "Ends in", num: true, text: (row) => (row.expires_s === null ? "–" : `${row.expires_s} s`) },
    { title: "Payload", kind: "long", text: (row) => (row.payload === null ? "" : row.payload + (row.is_cut ? " …" : "")) },
    { title: "", node: (row) => (context.may("operator") && !row.topic.startsWith("$") ? h("button", { type: "button", class: "danger",
      "aria-label": `Delete the retained message of ${row.topic}`, onclick: async () => { if (await removeRetained(context, row.topic)) look(false); } }, "Delete") : "") },
  ], { empty: "No retained message matches." });
  let rows = [], cursor = null;
  const look = async (isMore) => {
    try {
      const answer = await get("retained", { filter: filter.value || "#", cursor: isMore ? cursor : undefined });
      rows = isMore ? [...rows, ...answer.messages] : answer.messages;
      cursor = answer.cursor;
      more.hidden = !cursor;
      table.update(rows, (row) => row.topic);
      set(note, `${rows.length} shown${cursor ? ", there may be more" : ""}.`,
        answer.payloads_shown ? "" : " Payloads are shown from the role operator on.");
    } catch (failure) { set(note, failure.message); }
  };
  more.addEventListener("click", () => look(true));
  set(place, problem, h("div", { class: "grid" },
    card("What is published to", "c5", words, tree),
    card("Retained messages", "c7", h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); look(false); } },
      h("label", { for: "filter" }, "Topic filter (also $SYS/#)", filter), h("button", { type: "submit" }, "Show")),
    note, table.element, more)));
  look(false);
  const trial = tryCard(context);
  const followed = h("input", { id: "follow-topic", value: "#", size: 30, required: true, spellcheck: "false" });
  const log = logCard(context, "Follow messages, line by line", "", () => ({ topic: followed.value }),
    h("label", { for: "follow-topic" }, "Topic filter", followed));
  place.append(h("div", { class: "grid below" }, trial.element, log.element));
  let isFirst = true;
  const end = repeat(4, async () => {
    const answer = await get("topics");
    set(words, answer.sampled_messages
      ? `${number(answer.rate)} messages/s; this is a sample of ${answer.sampled_messages} messages on ${answer.sampled_topics} topics of the last seconds. Rare topics may be missing. ${number(answer.retained_messages)} retained.`
      : "Nothing was published in the last seconds. Try it below.");
    const grown = grow(answer.topics);
    if (isFirst && answer.topics.length) {
      isFirst = false;
      unfold(grown, open);
    }
    // What has the focus stays as it is.
    if (!tree.contains(document.activeElement)) set(tree, draw(grown, null, open));
  }, (failure) => set(problem, failure ? failure.message : ""));
  return () => { end(); trial.end(); log.end(); };
}

export const topics = { title: "Topics", show };
