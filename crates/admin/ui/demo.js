import { h, set, card, figure, number, delay, stateBadge } from "./dom.js";
import { get, send, repeat } from "./api.js";
import { Chart } from "./chart.js";

// The last run with control on and the last with control off, for as long as the page is open: one beside the other.
const runs = new Map();

function show(place, context) {
  const about = h("p", {}, "");
  const flow = new Chart([{ name: "flooder offers", color: 2, dash: true }, { name: "the broker takes", color: 1 }],
    { label: "Messages of the flooder per second", marks: "seconds" });
  const others = new Chart([{ name: "control on", color: 3 }, { name: "control off", color: 5, dash: true }],
    { label: "How long the others' messages take: 99 % of them within", marks: "seconds", format: (ms) => (ms ? delay(ms) : "0") });
  const state = h("div", { class: "row", id: "demo-state", role: "status", "aria-live": "polite" });
  const figures = { offered: figure("offered /s"), passed: figure("passed /s"), held: figure("made to wait"), refused: figure("refused /s"), p99: figure("others' p99") };
  const why = h("pre", { tabindex: "0" }, "");
  const problem = h("p", { class: "error", role: "alert" }, "");
  const turn = () => ask().catch((failure) => set(problem, failure.message));
  const button = (words, gate) => h("button", { type: "button", class: gate ? "main" : null, id: gate ? "start" : "start-off", onclick: async () => {
    await context.act(`The demonstration begins, control ${gate ? "on" : "off"}`, () => send("POST", "demo", { gate }));
    turn();
  } }, words);
  const on = button("Start, control on", true), off = button("Start, control off", false);
  const stop = h("button", { type: "button", onclick: async () => { await context.act("It ends", () => send("DELETE", "demo")); turn(); } }, "Stop");
  set(place, problem, h("div", { class: "grid" },
    card("One flooder among sensors", "", about, context.may("operator") ? h("div", { class: "row" }, on, off, stop)
      : h("p", { class: "quiet" }, "To start it needs the role operator."), state, h("div", { class: "figures" }, Object.values(figures).map((it) => it.element))),
    card("The flooder", "c6", flow.element), card("Everybody else: 99 % of their messages within", "c6", others.element), card("Why", "", why)));
  const words = { never: "not started", calm: "everybody keeps its rhythm", flood: "one publisher floods", over: "over" };
  let isRunning = false;
  const ask = async () => {
    const answer = await get("demo");
    isRunning = answer.is_running;
    const { sensors, usual_rate: usual, flood_rate: flood, seconds } = answer.about;
    set(about, `${sensors} sensors and one publisher of ${usual}/s, which after five seconds starts to send ${flood}/s; one subscriber that takes 500 messages/s. They live ${seconds} s in a broker of their own in this process: no client of yours is touched.`);
    on.disabled = off.disabled = answer.is_running;
    stop.disabled = !answer.is_running;
    set(state, h("span", { class: "badge" }, words[answer.phase] ?? answer.phase), answer.gate === undefined ? null : h("span", {}, `control ${answer.gate ? "on" : "off"}`),
      answer.flooder?.state ? h("span", {}, "the flooder is ", stateBadge(answer.flooder.state)) : null);
    set(problem, answer.problem ?? "");
    const at = answer.points.map((point) => point.at_s);
    const column = (name) => answer.points.map((point) => point[name] ?? 0);
    flow.draw(at, [column("offered"), column("passed")]);
    if (answer.gate !== undefined && answer.points.length) runs.set(answer.gate, answer.points);
    const both = [true, false].map((gate) => runs.get(gate) ?? []);
    const longest = both[0].length > both[1].length ? both[0] : both[1];
    others.draw(longest.map((point) => point.at_s), both.map((list) => longest.map((_, place) => list[place]?.others_p99_ms ?? null)));
    const last = answer.points[answer.points.length - 1];
    if (last) {
      figures.offered.set(number(last.offered));
      figures.passed.set(number(last.passed));
      figures.held.set(number(last.held));
      figures.refused.set(number(last.refused));
      figures.p99.set(delay(last.others_p99_ms));
    }
    if (answer.why && why.textContent !== answer.why) set(why, answer.why);
    if (!answer.why) set(why, "When it runs, this says what happened to the flooder and what to do about it.");
  };
  return repeat(1, ask, (failure) => failure && set(problem, failure.message));
}

export const demo = { title: "Demo", show };
