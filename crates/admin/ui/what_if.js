// What if: records when messages come, and says how to ask what other devices and limits would do with them.

import { h, set, card, number } from "./dom.js";
import { get, send } from "./api.js";

const LOOK_MS = 500;
// The page keeps them all: a longer recording is one for `tidegate trace record`.
const MESSAGES_MAX = 2000000;
const COLUMNS = "us,publisher,topic,topic_bytes,payload_bytes,qos,retain";

// The text that `tidegate what-if` reads.
function table(rows, seconds, missed, group) {
  const publishers = new Set(rows.map((row) => row[1])).size;
  const lines = [`# tidegate trace 1; ${Math.round(seconds)} s, ${rows.length} messages, ${publishers} publishers, ${missed} missed`];
  if (group) lines.push(`# group 1 ${group.name} ${group.pattern}`);
  lines.push(group ? `${COLUMNS},group` : COLUMNS);
  for (const row of rows) lines.push((group ? row : row.slice(0, 7)).join(","));
  return `${lines.join("\n")}\n`;
}

// The parts of a card, and what ends a recording when the page is left.
export function whatIfCard(context) {
  const intro = h("p", { class: "quiet small" }, "Writes down when messages come, without a name of anybody, and what three times the devices or a limit would do with them is asked at the command line. Nothing leaves the broker but times, sizes and numbers.");
  if (!context.may("operator")) return { element: card("What if?", "", intro, h("p", { class: "quiet" }, "This needs the role operator.")), end: () => {} };
  const seconds = h("input", { id: "what-if-seconds", type: "number", min: 5, max: 3600, value: 60, required: true });
  const name = h("input", { id: "what-if-group", value: "sensors", size: 10, pattern: "[A-Za-z0-9_-]{1,32}" });
  const pattern = h("input", { id: "what-if-pattern", placeholder: "sensor-*", size: 14, spellcheck: "false" });
  const button = h("button", { type: "submit" }, "Record");
  const words = h("p", { id: "what-if-state", class: "small quiet", role: "status" }, "");
  const result = h("div");
  let address = null, isOver = false;
  const finish = (rows, spent, missed, group) => {
    if (address) URL.revokeObjectURL(address);
    address = URL.createObjectURL(new Blob([table(rows, spent, missed, group)], { type: "text/csv" }));
    const command = `tidegate what-if trace.csv --devices x3 --limit ${group ? group.name : "all"}=5/s`;
    set(result, rows.length === 0 ? h("p", {}, "Nobody published; there is nothing to ask about.") : [
      h("p", {}, h("a", { href: address, download: "trace.csv", id: "what-if-file" }, "Save trace.csv"), `, then: `, h("code", { id: "what-if-command" }, command)),
      h("p", { class: "quiet small" }, "The answer has latencies, who would wait, what would be dropped, a time line, and the settings to write."),
    ]);
  };
  const record = async (event) => {
    event.preventDefault();
    const group = pattern.value ? { name: name.value || "sensors", pattern: pattern.value } : null;
    const rows = [], start = performance.now();
    let missed = 0;
    const spent = () => (performance.now() - start) / 1000;
    button.disabled = true;
    set(result);
    try {
      const begun = await send("POST", "trace", group ? { groups: [group.pattern] } : {});
      while (!isOver && spent() < Number(seconds.value) && rows.length < MESSAGES_MAX) {
        await new Promise((done) => { setTimeout(done, LOOK_MS); });
        const more = await get("trace", { recording: begun.recording });
        for (const row of more.arrivals) rows.push(row);
        missed += more.missed;
        set(words, `${number(rows.length)} messages, ${Math.max(0, Math.round(Number(seconds.value) - spent()))} s left`);
      }
      set(words, `${number(rows.length)} messages in ${Math.round(spent())} s${missed ? `, ${number(missed)} missed` : ""}`);
    } catch (failure) {
      set(words, failure.message);
    }
    finish(rows, spent(), missed, group);
    button.disabled = false;
  };
  const form = h("form", { class: "row", onsubmit: record }, h("label", { for: "what-if-seconds" }, "Seconds", seconds),
    h("label", { for: "what-if-group" }, "Group", name), h("label", { for: "what-if-pattern" }, "its clients (optional)", pattern), button);
  return { element: card("What if?", "", intro, form, words, result), end: () => { isOver = true; if (address) URL.revokeObjectURL(address); } };
}
