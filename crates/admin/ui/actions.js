// What can be done about a client. Each asks once, says what came of it, and can be undone where that is possible.

import { confirmed } from "./dom.js";
import { get, send } from "./api.js";

export const TIMES = [["600", "10 minutes"], ["3600", "1 hour"], ["86400", "1 day"]];
const UNITS = { 1: "s", 60: "m", 3600: "h" };

// A rate as it was set: so many at once are as many as in its unit of time.
function written(rate, burst) {
  const unit = burst ? UNITS[Math.round(burst / rate)] : undefined;
  if (unit) return `${burst}/${unit}`;
  return Number.isInteger(rate) ? `${rate}/s` : `${Math.max(1, Math.round(rate * 3600))}/h`;
}

async function limitOf(id) {
  const { limits } = await get("limits");
  return limits.find((it) => it.kind === "client" && it.name === id) ?? null;
}

async function restore(id, before) {
  await send("DELETE", `limits?client=${encodeURIComponent(id)}`).catch((problem) => { if (problem.status !== 404) throw problem; });
  if (!before) return;
  const body = { client: id };
  if (before.rate !== null) body.rate = written(before.rate, before.burst);
  if (before.entitled !== null) body.entitled = written(before.entitled);
  await send("PUT", "limits", body);
}

// Acts of one client for this session of the page.
export function actions(context, id) {
  const name = `“${id}”`;
  const limited = async (question, button, words, body) => {
    if (!await confirmed(question, button)) return null;
    const before = await limitOf(id).catch(() => null);
    return context.act(words, () => send("PUT", "limits", { client: id, ...body }),
      () => context.act(`${name} is as it was`, () => restore(id, before)));
  };
  const unban = () => context.act(`${name} may come in again`, () => send("DELETE", `bans?client=${encodeURIComponent(id)}`));
  return {
    limit: (rate) => limited(`Let ${name} publish ${rate} and no more? It holds until somebody takes it away.`, `Limit to ${rate}`,
      `${name} may publish ${rate}`, { rate }),
    entitle: (rate) => limited(`Entitle ${name} to ${rate}? It comes first up to that rate where something is scarce.`, `Entitle to ${rate}`,
      `${name} is entitled to ${rate}`, { entitled: rate }),
    unlimit: async () => {
      const before = await limitOf(id).catch(() => null);
      return context.act(`${name} has no limit any more`, () => send("DELETE", `limits?client=${encodeURIComponent(id)}`),
        () => context.act(`${name} is as it was`, () => restore(id, before)));
    },
    ban: async (seconds = 3600) => {
      const time = TIMES.find(([value]) => Number(value) === seconds)?.[1] ?? `${seconds} s`;
      if (!await confirmed(`Disconnect ${name} and keep it out for ${time}? (MQTT only: KPs of the smart space are not kept out.)`, "Ban", true)) return null;
      return context.act(`${name} is kept out for ${time}`,
        () => send("POST", "bans", { client: id, seconds, reason: "by the dashboard" }), unban);
    },
    unban,
    kick: async () => {
      if (!await confirmed(`End the connection of ${name}? It may come back at once. This cannot be undone.`, "End the connection", true)) return null;
      return context.act(`${name} was disconnected`, () => send("DELETE", `clients/${encodeURIComponent(id)}`));
    },
    endSession: async () => {
      if (!await confirmed(`End the session of ${name}? Its subscriptions and all messages that wait for it are lost. This cannot be undone.`, "End the session", true)) return null;
      return context.act(`the session of ${name} has ended`, () => send("DELETE", `clients/${encodeURIComponent(id)}/session`));
    },
  };
}
