import { h, set, card, number, bytes, span, stateBadge, Table } from "./dom.js";
import { get, send, repeat } from "./api.js";
import { clusterCard } from "./cluster.js";
import { tokensCard } from "./tokens.js";
import { usersCard } from "./users.js";

function list(rows) {
  return h("table", {}, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "long" }, value)))));
}

// A part of the most, as a bar.
function part(value) {
  const fill = h("i");
  fill.style.width = `${(value * 100).toFixed(1)}%`;
  return h("div", { class: "bar", "aria-hidden": "true" }, fill);
}

// How often each level of pressure was reached.
function levels(counts) {
  const seen = counts.map((count, level) => (count && level > 0 ? `${count} × level ${level}` : null)).filter(Boolean);
  return seen.length ? seen.join(", ") : "calm all the time";
}

function show(place, context) {
  const problem = h("p", { class: "error", role: "alert" }, "");
  const process = h("div"), memory = h("div"), store = h("div");
  const bar = h("div", { class: "bar" }, h("i"));
  const syncs = new Table([
    { title: "Sync took less than", text: (row) => row.words }, { title: "Times", num: true, text: (row) => number(row.count) },
    { title: "", kind: "wide", node: (row) => part(row.part), state: (row) => row.part.toFixed(3) },
  ], { empty: "No sync yet." });
  const doors = new Table([
    { title: "Listener", text: (row) => row.name }, { title: "Address", kind: "long", text: (row) => row.address ?? "–" },
    { title: "State", node: (row) => stateBadge(row.state), state: (row) => row.state },
  ], { empty: "No listeners." });
  const certificates = new Table([
    { title: "Listener", text: (row) => row.listener }, { title: "Subject", kind: "long", text: (row) => row.subject },
    { title: "Ends", text: (row) => row.expires ?? "unknown" },
    { title: "Left", num: true, text: (row) => (row.days_left === null ? "–" : `${row.days_left} d`) },
  ], { empty: "No TLS: no certificates are shown to clients." });
  const reload = context.may("admin") ? h("button", { type: "button", onclick: () => context.act("Read again", async () => {
    const done = await send("POST", "reload");
    const words = [...done.changed, ...done.needs_restart.map((key) => `${key} (after a restart)`)];
    set(note, words.length ? `Changed: ${words.join(", ")}` : "No setting changed.");
  }) }, "Read configuration, users and certificates again") : null;
  const note = h("p", { class: "quiet small", role: "status" }, "");
  const search = h("input", { id: "key", type: "search", placeholder: "limits, backoff, …" });
  const settings = new Table([
    { title: "Key", kind: "name", text: (row) => row.key }, { title: "Value", kind: "mid", text: (row) => row.value },
    { title: "From", kind: "mid", text: (row) => row.origin },
    { title: "Meaning", kind: "long", text: (row) => row.about + (row.needs_restart ? " (restart)" : "") },
  ], { look: "compact", empty: "No such setting." });
  const access = usersCard(context), tokens = tokensCard(context), cluster = clusterCard(list);
  for (const part of [access, tokens]) part.ask().catch((failure) => set(problem, failure.message));
  set(place, problem, h("div", { class: "grid" },
    card("The process", "c6", process, h("div", { class: "row" }, reload), note),
    card("Memory", "c6", bar, memory),
    card("Store", "c6", store), card("Sync times", "c6", syncs.element),
    cluster.element, card("Listeners", "c6", doors.element), card("Certificates", "c6", certificates.element),
    access.element, tokens.element,
    card("Settings in force", "", h("div", { class: "row" }, h("label", { for: "key" }, "Search", search)), settings.element)));
  let all = [];
  const draw = () => settings.update(all.filter((row) => `${row.key} ${row.about}`.toLowerCase().includes(search.value.toLowerCase())), (row) => row.key);
  search.addEventListener("input", draw);
  get("config").then((answer) => { all = answer.settings; draw(); }).catch((failure) => set(problem, failure.message));
  return repeat(3, async () => {
    const answer = await get("system");
    set(process, list([["Version", answer.version], ["Started", `${answer.started} (${span(answer.uptime_s)} ago)`],
      ["Process", answer.process_id], ["Shards", answer.shards], ["Sockets", `${answer.sockets}, ${answer.handshakes} in a handshake`],
      ["Configuration read", answer.configured ?? "unknown"],
      ["Ready for clients", answer.ready ? "yes" : `no: ${answer.not_ready_because}`],
      ["Pressure since the start", levels(answer.level_changes)]]));
    const it = answer.memory;
    const part = it.used_bytes / Math.max(1, it.budget_bytes);
    bar.firstChild.style.width = `${(part * 100).toFixed(1)}%`;
    bar.classList.toggle("hot", part > 0.8);
    set(memory, list([["Budget", bytes(it.budget_bytes)], ["Used of it", `${bytes(it.used_bytes)} (${(part * 100).toFixed(1)} %)`],
      ["Queues", bytes(it.queue_bytes)], ["Held", bytes(it.held_bytes)], ["Retained", bytes(it.retained_bytes)],
      ["Resident (whole process)", bytes(it.resident_bytes)]]));
    const disk = answer.store;
    if (disk) {
      set(store, disk.is_fine ? null : h("p", { class: "error" }, `The store cannot write: ${disk.trouble}`),
        list([["Folder", disk.dir], ["Durability", disk.durability], ["On disk", `${bytes(disk.disk_bytes)} in ${disk.files} ${disk.files === 1 ? "file" : "files"}`],
          ["Written", `${number(disk.records)} records, ${bytes(disk.bytes_written)}`], ["Waiting", bytes(disk.queue_bytes)],
          ["Failures", disk.failures], ["Compactions", disk.compactions],
          ["Syncs", `${number(disk.syncs.count)}; p50 ${disk.syncs.p50_ms ?? "–"} ms, p99 ${disk.syncs.p99_ms ?? "–"} ms, longest ${disk.syncs.max_ms} ms`]]));
      const words = (place) => (place < 10 ? `${2 ** place} µs` : place < 20 ? `${2 ** (place - 10)} ms` : `${2 ** (place - 20)} s`);
      const most = Math.max(1, ...disk.syncs.buckets);
      syncs.update(disk.syncs.buckets.map((count, place) => ({ count, words: words(place), part: count / most })).filter((row) => row.count), (row) => row.words);
    } else {
      set(store, h("p", { class: "quiet" }, "Nothing is kept on disk (store.keep = false)."));
    }
    doors.update(answer.listeners, (row) => row.name);
    certificates.update(answer.certificates, (row) => `${row.listener} ${row.subject}`);
    await cluster.ask();
  }, (failure) => set(problem, failure ? failure.message : ""));
}

export const system = { title: "System", show };
