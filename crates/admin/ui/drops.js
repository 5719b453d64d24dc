import { h, set, card, number, Table, clientLink, stateBadge } from "./dom.js";
import { get, repeat } from "./api.js";

const SIDES = { in: "from publishers", out: "to receivers", between: "between shards" };

function sum(side, total, parts) {
  return h("p", {}, h("strong", {}, `${number(total)} ${side}`), " = ", parts.map(([name, count], place) =>
    [place ? " + " : "", `${number(count)} ${name}`]));
}

function show(place) {
  const problem = h("p", { class: "error", role: "alert" }, "");
  const sums = h("div");
  const all = h("input", { type: "checkbox", id: "all" });
  const reasons = new Table([
    { title: "Reason", kind: "name", text: (row) => row.reason },
    { title: "Word", text: (row) => row.word },
    { title: "Side", text: (row) => SIDES[row.side] ?? row.side },
    { title: "Messages", num: true, text: (row) => number(row.messages) },
    { title: "Now /s", num: true, text: (row) => number(row.rate) },
    { title: "Meaning", kind: "long", text: (row) => row.meaning },
  ], { empty: "Nothing was lost or refused since the start." });
  const worst = new Table([
    { title: "Client", kind: "name", node: (row) => clientLink(row.client_id) },
    { title: "State", node: (row) => stateBadge(row.state), state: (row) => row.state },
    { title: "Refused", num: true, text: (row) => number(row.refused) },
    { title: "Lost of its own", num: true, text: (row) => number(row.lost_in) },
    { title: "Lost for it", num: true, text: (row) => number(row.lost_out) },
  ], { empty: "Nobody lost anything." });
  const save = h("button", { type: "button" }, "Save as JSON");
  let latest = null;
  save.addEventListener("click", () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([JSON.stringify(latest, null, 1)], { type: "application/json" })),
      download: "tidegate-drops.json" });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  set(place, problem, h("p", { class: "small quiet" }, "Refused: its sender was told where the protocol has a word for it. Lost: nobody was told."), h("div", { class: "grid" },
    card("The ledger", "", sums, h("div", { class: "row" }, save)),
    card("By reason", "", h("label", { class: "small quiet" }, all, " also reasons that have not occurred"), reasons.element),
    card("Who lost the most", "", worst.element)));
  const draw = (answer) => {
    latest = answer;
    const { in: into, out } = answer.ledger;
    set(sums, sum("received", into.received, [["passed", into.passed], ["held", into.held], ...Object.entries(into.lost)]),
      sum("deliveries", out.deliveries, [["delivered", out.delivered], ["queued", out.queued], ["under way", out.inflight],
        ...Object.entries(out.lost)]),
      h("p", { class: answer.ledger.balances ? "good" : "bad" }, answer.ledger.balances ? "Both sums are right." : "The sums are not right; please report this."));
    reasons.update(answer.reasons.filter((row) => all.checked || row.messages > 0).sort((one, other) => other.messages - one.messages), (row) => row.reason);
    worst.update([...answer.clients, ...answer.closed], (row) => `${row.client_id} ${row.closed_at ?? ""}`);
  };
  all.addEventListener("change", () => latest && draw(latest));
  return repeat(3, async () => draw(await get("drops")), (failure) => set(problem, failure ? failure.message : ""));
}

export const drops = { title: "Drops", show };
