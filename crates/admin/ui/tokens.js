// Tokens that clients give as passwords: what is asked of them, one for a device, and all of a user taken back. For admins.

import { h, set, card, confirmed, Table } from "./dom.js";
import { get, send } from "./api.js";

const LIVES = [["86400", "a day"], ["604800", "a week"], ["2592000", "30 days"], ["31536000", "a year"]];

function makeForm(context, turn) {
  const user = h("input", { id: "token-user", required: true, autocomplete: "off", size: 14 });
  const roles = h("input", { id: "token-roles", size: 14, placeholder: "with commas" });
  const life = h("select", { id: "token-life" }, LIVES.map(([value, words]) => h("option", { value, selected: value === "2592000" }, words)));
  const made = h("div", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    const body = { user: user.value, seconds: Number(life.value), roles: roles.value.split(",").map((role) => role.trim()).filter(Boolean) };
    let answer;
    if (!await context.act(`A token of ${body.user} is made`, async () => { answer = await send("POST", "tokens", body); })) return;
    const text = h("textarea", { class: "low", id: "token-made", readonly: true, spellcheck: "false", "aria-label": `The token of ${body.user}` });
    text.value = answer.token;
    set(made, h("p", {}, `The token of “${body.user}”, told this once; its client gives it as the password:`), text);
    text.select();
    turn().catch(() => {});
  };
  return [h("form", { class: "row", onsubmit: submit }, h("label", { for: "token-user" }, "User", user), h("label", { for: "token-roles" }, "Roles", roles),
    h("label", { for: "token-life" }, "Lasts", life), h("button", { type: "submit", id: "token-make" }, "Make a token")), made];
}

function takeBack(context, turn) {
  const user = h("input", { id: "revoke-user", required: true, autocomplete: "off", size: 14 });
  const submit = async (event) => {
    event.preventDefault();
    if (!await confirmed(`Take back every token of “${user.value}” that was made until now? Its connections end (an open WebSocket of the smart space lasts until its token ends), and everybody has to log in again here. It cannot be undone, but a new token can be made.`, "Take back", true)) return;
    if (await context.act(`The tokens of ${user.value} are taken back`, () => send("DELETE", `tokens?user=${encodeURIComponent(user.value)}`))) turn().catch(() => {});
  };
  return h("form", { class: "row", onsubmit: submit }, h("label", { for: "revoke-user" }, "User", user), h("button", { type: "submit", class: "danger", id: "token-revoke" }, "Take its tokens back"));
}

export function tokensCard(context) {
  if (!context.may("admin")) return { element: card("Tokens", "", h("p", { class: "quiet" }, "To see them needs the role admin.")), ask: async () => {} };
  const words = h("p", { class: "quiet small" }, "");
  const doing = h("div");
  const refused = h("p", { class: "small" }, "");
  const revoked = new Table([{ title: "User", kind: "name", text: (row) => row.user },
    { title: "Taken back, if made until", text: (row) => new Date(row.until_s * 1000).toLocaleString() }], { empty: "No token was taken back." });
  let isFirst = true;
  const ask = async () => {
    const answer = await get("tokens");
    if (!answer.are_taken) return set(words, "Clients give passwords or certificates. JSON Web Tokens are taken with jwt.keys, of an identity provider, or jwt.secret_file, a secret of your own: then tokens can be made here.");
    const asked = [answer.issuer ? `made by ${answer.issuer}` : null, answer.audience.length ? `for ${answer.audience.join(" or ")}` : null, answer.roles_claim ? `roles in ${answer.roles_claim}` : "without roles (jwt.roles_claim is unset)"];
    set(words, `A token is a password here: ${answer.keys} ${answer.keys === 1 ? "key" : "keys"}, ${asked.filter(Boolean).join(", ")}. ${answer.can_make ? "" : "To make some here takes a secret of your own (jwt.secret_file)."}`);
    set(refused, answer.refused.length ? `Refused: ${answer.refused.map((it) => `${it.count} ${it.reason}`).join(", ")}.` : "None was refused.");
    revoked.update(answer.revoked, (row) => `${row.user} ${row.until_s}`);
    if (isFirst) set(doing, answer.can_make ? makeForm(context, ask) : null, h("h3", {}, "Taken back"), takeBack(context, ask), revoked.element);
    isFirst = false;
  };
  return { element: card("Tokens", "", words, refused, doing), ask };
}
