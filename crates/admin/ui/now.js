import { h, set, card, figure, number, bytes, delay, Table, stateBadge, troubleBadge, troubleWord, clientLink } from "./dom.js";
import { get, repeat } from "./api.js";
import { Chart, ChartGroup } from "./chart.js";
import { Gauge } from "./gauge.js";
import { Troubles } from "./troubles.js";

const RANGES = [["300", "5 minutes"], ["900", "15 minutes"], ["3600", "1 hour"]];
const MILLIS = (value) => (value >= 1000 ? `${number(value / 1000)} s` : `${number(value)} ms`);

// Charts of one time, by the fields of the history that each draws.
function charts(group) {
  const make = (title, label, format, lines, least) => {
    const drawn = lines.map(([name, , color], place) => ({ name, color, dash: place > 0 }));
    const chart = new Chart(drawn, { label, format, group, least });
    return { title, element: chart.element, draw: (at, column) => chart.draw(at, lines.map(([, field]) => column(field))) };
  };
  return [
    make("Messages per second", "Messages per second", number, [["delivered", "delivered", 3], ["passed", "passed", 1], ["offered", "received", 2]]),
    make("Lost and refused per second", "Messages lost and refused per second", number, [["lost", "lost", 5], ["refused", "refused", 2]]),
    make("Waiting messages", "Messages that wait", number, [["queued for receivers", "queued", 4], ["held of publishers", "held", 2]]),
    make("Time to delivery", "Time from a message's coming to its delivery", MILLIS, [["99 % within", "latency_p99_ms", 5], ["half within", "latency_p50_ms", 1]]),
    make("Bytes per second", "Bytes per second", (value) => bytes(Math.round(value)).replace(/^(\d{2,})\.\d/, "$1"), [["out", "bytes_sent", 3], ["in", "bytes_received", 1]], 1024),
    make("Processor", "Processor cores that the broker uses", (value) => number(value, 2), [["cores in use", "cpu_cores", 4]], 0.1),
  ];
}

function show(place, context) {
  const { live } = context;
  const gauge = new Gauge();
  const figures = { connected: figure("clients connected"), offered: figure("offered /s"), passed: figure("passed /s"),
    delivered: figure("delivered /s"), refused: figure("refused /s"), lost: figure("lost /s"),
    slowed: figure("publishers held back"), losing: figure("receivers losing"), slow: figure("receivers slow") };
  const troubles = new Troubles(context);
  const group = new ChartGroup();
  const drawn = charts(group);
  const memory = h("div", { class: "bar" }, h("i"));
  const memoryWords = h("span", { class: "quiet small" }, "");
  const range = h("select", { id: "range" }, RANGES.map(([value, words]) => h("option", { value }, words)));
  const talkers = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "State", node: (row) => troubleBadge(live, row), state: (row) => troubleWord(live, row) },
    { title: "Rate /s", num: true, kind: "less", text: (row) => number(row.rate) },
    { title: "Usual /s", num: true, kind: "less", text: (row) => number(row.learned_rate) },
    { title: "Delay", num: true, kind: "less", text: (row) => delay(row.delay_ms) },
    { title: "Refused", num: true, kind: "less", text: (row) => number(row.refused) },
    { title: "Lost", num: true, kind: "less", text: (row) => number(row.drops) },
  ], { look: "compact", empty: "Nobody publishes at the moment. Try:  tidegate pub -t test/a -m hello" });
  const queues = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "State", node: (row) => stateBadge(row.state), state: (row) => row.state },
    { title: "Messages", num: true, kind: "less", text: (row) => number(row.queue_messages) },
    { title: "Bytes", num: true, kind: "less", text: (row) => bytes(row.queue_bytes) },
    { title: "Under way", num: true, kind: "less", text: (row) => number(row.inflight) },
    { title: "Reads /s", num: true, kind: "less", text: (row) => number(row.reads_rate) },
    { title: "Lost", num: true, kind: "less", text: (row) => number(row.lost_out) },
  ], { look: "compact", empty: "No queues: everybody takes what comes." });
  const reasons = new Table([
    { title: "Reason", kind: "name", text: (row) => row[0] },
    { title: "Side", text: (row) => row[2] },
    { title: "Messages", num: true, text: (row) => number(row[1]) },
  ], { empty: "Nothing was lost or refused since the start." });
  const ledger = h("p", { class: "small quiet" }, "");
  const problem = h("p", { class: "error", role: "alert" }, "");
  set(place, problem, troubles.element, h("div", { class: "grid" },
    card(null, "", h("div", { class: "figures" }, Object.values(figures).map((it) => it.element))),
    card("Top talkers", "c8", talkers.element),
    card("Pressure", "c4", gauge.element, h("h3", {}, "Memory budget"), memory, memoryWords),
    h("div", { class: "row charts-head" }, h("label", { for: "range" }, "Time shown", range),
      h("span", { class: "quiet small" }, "Drag over a chart to zoom, double click for all; with the keyboard: arrows, +, −, Escape.")),
    drawn.map((it) => card(it.title, "c6", it.element)),
    card("Longest queues", "c7", queues.element),
    card("Lost or refused, by reason", "c5", ledger, reasons.element, h("p", { class: "small" }, h("a", { href: "#/drops" }, "What the reasons mean")))));

  const drawHistory = async () => {
    const { fields, points } = await get("history", { seconds: range.value });
    // Nothing was delivered in a second without a time to delivery.
    const column = (name) => points.map((point) => (name.startsWith("latency") && point[fields.indexOf(name)] === 0 ? null : point[fields.indexOf(name)]));
    for (const it of drawn) it.draw(column("at"), column);
  };
  range.addEventListener("change", () => { group.zoom(null); drawHistory().catch(() => {}); });
  const showTop = (top) => {
    talkers.update(top.talkers, (row) => row.client_id);
    queues.update(top.queues, (row) => row.client_id);
  };
  const onResize = () => group.zoom(group.range);
  addEventListener("resize", onResize);
  const ends = [
    () => removeEventListener("resize", onResize),
    repeat(2, drawHistory, (failure) => set(problem, failure ? `No history: ${failure.message}` : "")),
    live.on("tick", (tick) => {
      gauge.show(tick.pressure);
      figures.connected.set(number(tick.clients.connected));
      figures.offered.set(number(tick.rates.received));
      figures.passed.set(number(tick.rates.passed));
      figures.delivered.set(number(tick.rates.delivered));
      figures.lost.set(number(tick.rates.lost), tick.rates.lost > 0 && "bad");
      figures.refused.set(number(tick.rates.refused), tick.rates.refused > 0 && "warn");
      figures.slowed.set(number(tick.publishers_throttled), tick.publishers_throttled > 0 && "warn");
      figures.losing.set(number(tick.clients_losing), tick.clients_losing > 0 && "bad");
      figures.slow.set(number(tick.clients_slow), tick.clients_slow > 0 && "warn");
      troubles.show(tick);
      // Who floods is said by the tick, which may come after the list.
      if (live.top) showTop(live.top);
      const { memory_used_bytes: used, memory_max_bytes: most } = tick.pressure;
      const part = Math.min(1, used / Math.max(1, most));
      memory.firstChild.style.width = `${(part * 100).toFixed(1)}%`;
      memory.classList.toggle("hot", part > 0.8);
      set(memoryWords, `${bytes(used)} of ${bytes(most)} (${(part * 100).toFixed(0)} %)`);
      set(ledger, tick.ledger.balances ? "Every message is accounted for: the ledger balances."
        : "The ledger does not balance; please report this.");
      const lost = [["in", "from publishers"], ["out", "to receivers"]].flatMap(([side, words]) =>
        Object.entries(tick.ledger[side].lost).map(([name, count]) => [name, count, words]));
      reasons.update(lost.sort((one, other) => other[1] - one[1]).slice(0, 10), (row) => row[0]);
    }),
    live.on("top", showTop),
  ];
  return () => ends.forEach((end) => end());
}

export const now = { title: "Now", show };
