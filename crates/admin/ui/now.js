import { h, set, card, figure, number, bytes, delay, Table, stateBadge, clientLink } from "./dom.js";
import { get, repeat } from "./api.js";
import { Chart, Gauge } from "./chart.js";

const RANGES = [["300", "5 minutes"], ["900", "15 minutes"], ["3600", "1 hour"]];

function show(place, { live }) {
  const gauge = new Gauge();
  const figures = { connected: figure("clients connected"), offered: figure("offered /s"), passed: figure("passed /s"),
    delivered: figure("delivered /s"), refused: figure("refused /s"), lost: figure("lost /s"),
    slowed: figure("publishers held back"), losing: figure("receivers losing"), slow: figure("receivers slow") };
  const sentence = h("p", { id: "sentence", role: "status" }, "");
  const next = h("p", { class: "small quiet" }, "");
  const alarms = h("ul", { id: "alarms", class: "small" });
  const flow = new Chart([{ name: "delivered", color: 3 }, { name: "passed", color: 1 },
    { name: "offered", color: 2, dash: true }], { label: "Messages per second" });
  const losses = new Chart([{ name: "lost", color: 5 }, { name: "refused", color: 2, dash: true }],
    { label: "Messages lost and refused per second" });
  const waiting = new Chart([{ name: "queued for receivers", color: 4 }, { name: "held of publishers", color: 2, dash: true }],
    { label: "Messages that wait" });
  const memory = h("div", { class: "bar" }, h("i"));
  const memoryWords = h("span", { class: "quiet small" }, "");
  const range = h("select", { id: "range" }, RANGES.map(([value, words]) => h("option", { value }, words)));
  const talkers = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "State", node: (row) => stateBadge(row.state), state: (row) => row.state },
    { title: "Rate /s", num: true, text: (row) => number(row.rate) },
    { title: "Learned /s", num: true, text: (row) => number(row.learned_rate) },
    { title: "Delay", num: true, text: (row) => delay(row.delay_ms) },
    { title: "Refused", num: true, text: (row) => number(row.refused) },
    { title: "Lost", num: true, text: (row) => number(row.drops) },
  ], { empty: "Nobody publishes at the moment. Try:  tidegate pub -t test/a -m hello" });
  const queues = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "State", node: (row) => stateBadge(row.state), state: (row) => row.state },
    { title: "Messages", num: true, text: (row) => number(row.queue_messages) },
    { title: "Bytes", num: true, text: (row) => bytes(row.queue_bytes) },
    { title: "Under way", num: true, text: (row) => number(row.inflight) },
    { title: "Lost", num: true, text: (row) => number(row.lost_out) },
  ], { empty: "No queues: everybody takes what comes." });
  const reasons = new Table([
    { title: "Reason", kind: "name", text: (row) => row[0] },
    { title: "Side", text: (row) => row[2] },
    { title: "Messages", num: true, text: (row) => number(row[1]) },
  ], { empty: "Nothing was lost or refused since the start." });
  const ledger = h("p", { class: "small quiet" }, "");
  const problem = h("p", { class: "error", role: "alert" }, "");
  set(place, problem, h("section", { class: "card sentence", "aria-label": "What is wrong" }, sentence, next, alarms), h("div", { class: "grid" },
    card("Pressure", "c4", gauge.element, h("h3", {}, "Memory budget"), memory, memoryWords),
    card("Right now", "c8", h("div", { class: "figures" }, Object.values(figures).map((it) => it.element)),
      h("h3", {}, "Top talkers"), talkers.element),
    card(null, "", h("div", { class: "row" }, h("label", { for: "range" }, "Time shown", range)),
      h("h2", {}, "Offered and passed"), flow.element),
    card("Lost and refused", "c6", losses.element), card("Waiting", "c6", waiting.element),
    card("Longest queues", "c7", queues.element),
    card("Lost or refused, by reason", "c5", ledger, reasons.element, h("p", { class: "small" }, h("a", { href: "#/drops" }, "What the reasons mean")))));

  let said = "";
  const showSentence = (now) => {
    const words = JSON.stringify(now);
    if (words === said) return;
    said = words;
    sentence.className = { calm: "good", notice: "warn" }[now.mood] ?? "bad";
    set(sentence, now.text);
    set(next, now.client ? [clientLink(now.client), ": why, and what to do. "] : null,
      now.next ? ["Or type: ", h("code", {}, now.next)] : null);
    set(alarms, now.alarms.map((alarm) => h("li", {}, `${alarm.since} ${alarm.kind}: ${alarm.text}`)));
    alarms.hidden = now.alarms.length === 0;
  };
  const drawHistory = async () => {
    const { fields, points } = await get("history", { seconds: range.value });
    const column = (name) => points.map((point) => point[fields.indexOf(name)]);
    const at = column("at");
    flow.draw(at, [column("delivered"), column("passed"), column("received")]);
    losses.draw(at, [column("lost"), column("refused")]);
    waiting.draw(at, [column("queued"), column("held")]);
  };
  range.addEventListener("change", () => drawHistory().catch(() => {}));
  const ends = [
    repeat(2, drawHistory, (failure) => set(problem, failure ? `No history: ${failure.message}` : "")),
    live.on("tick", (tick) => {
      gauge.show(tick.pressure);
      figures.connected.set(number(tick.clients.connected));
      figures.offered.set(number(tick.rates.received));
      figures.passed.set(number(tick.rates.passed));
      figures.delivered.set(number(tick.rates.delivered));
      figures.lost.set(number(tick.rates.lost));
      figures.refused.set(number(tick.rates.refused));
      figures.slowed.set(number(tick.publishers_throttled));
      figures.losing.set(number(tick.clients_losing));
      figures.slow.set(number(tick.clients_slow));
      showSentence(tick.now);
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
    live.on("top", (top) => {
      talkers.update(top.talkers, (row) => row.client_id);
      queues.update(top.queues, (row) => row.client_id);
    }),
  ];
  return () => ends.forEach((end) => end());
}

export const now = { title: "Now", show };
