// Users with their roles, and the rules of access. The file is the truth: what is changed here is written there.

import { h, set, card, confirmed, Table } from "./dom.js";
import { get, send } from "./api.js";

const ROLES = ["viewer", "operator", "admin", "monitor"];

function form(context, turn) {
  const name = h("input", { id: "user-name", required: true, autocomplete: "off", size: 14 });
  const password = h("input", { id: "user-password", type: "password", autocomplete: "new-password", size: 14 });
  const boxes = ROLES.map((role) => h("input", { type: "checkbox", id: `role-${role}`, value: role }));
  const other = h("input", { id: "user-roles", size: 14, placeholder: "others, with commas" });
  const submit = async (event) => {
    event.preventDefault();
    const roles = [...boxes.filter((box) => box.checked).map((box) => box.value), ...other.value.split(",").map((role) => role.trim()).filter(Boolean)];
    const body = { name: name.value, roles };
    if (password.value) body.password = password.value;
    if (!await confirmed(`Write the user “${name.value}” (${roles.join(", ") || "no roles"}) to the file of the users? It holds at once; everybody has to log in again here.`, "Write")) return;
    if (await context.act(`The user ${name.value} is written`, () => send("PUT", "users", body))) { password.value = ""; turn().catch(() => {}); }
  };
  return h("form", { class: "row", onsubmit: submit }, h("label", { for: "user-name" }, "User", name), h("label", { for: "user-password" }, "Password (empty: as before)", password),
    boxes.map((box) => h("label", { class: "check", for: box.id }, box, ` ${box.value}`)), h("label", { for: "user-roles" }, "Roles of rules", other), h("button", { type: "submit" }, "Add or change"));
}

export function usersCard(context) {
  if (!context.may("admin")) return { element: card("Users and rules", "", h("p", { class: "quiet" }, "To see them needs the role admin.")), ask: async () => {} };
  const words = h("p", { class: "quiet small" }, "");
  const rules = h("div");
  const change = h("div");
  const users = new Table([
    { title: "User", kind: "name", text: (row) => row.name }, { title: "Roles", kind: "long", text: (row) => row.roles.join(", ") || "–" },
    { title: "", node: (row) => h("button", { type: "button", class: "danger", "aria-label": `Remove the user ${row.name}`, onclick: async () => {
      if (await confirmed(`Remove the user “${row.name}”? Its password is gone with it; its connections end at the next login.`, "Remove", true)
        && await context.act(`${row.name} is removed`, () => send("DELETE", `users?name=${encodeURIComponent(row.name)}`))) ask().catch(() => {});
    } }, "Remove") },
  ], { empty: "No users: this machine only. The first one:  tidegate user add NAME --roles admin" });
  let isFirst = true;
  const ask = async () => {
    const answer = await get("users");
    users.update(answer.users, (row) => `${row.name} ${row.roles}`);
    set(words, answer.users_file ? `From ${answer.users_file}. ` : "", answer.allow_anonymous ? "Clients without a user come in, too (allow_anonymous)." : "");
    const text = h("textarea", { id: "rules-text", spellcheck: "false", "aria-label": "Rules of access, as the file has them" });
    text.value = answer.rules_text ?? "";
    const write = async () => {
      if (!await confirmed("Write these rules to their file? They hold at once, also for who is connected.", "Write")) return;
      if (await context.act("The rules are written", () => send("PUT", "rules", { before: answer.rules_text, text: text.value }),
        () => context.act("The rules are as they were", () => send("PUT", "rules", { before: text.value, text: answer.rules_text })).then(ask))) ask().catch(() => {});
    };
    const editor = typeof answer.rules_text === "string"
      ? h("details", {}, h("summary", {}, "Change them"), text, h("div", { class: "row" }, h("button", { type: "button", id: "rules-write", onclick: write }, "Write"))) : null;
    set(rules, answer.rules.length ? h("ul", { class: "small" }, answer.rules.map((rule) => h("li", {}, h("code", {}, rule)))) : h("p", { class: "quiet" }, "No rules of access: who comes in may do everything."),
      h("p", { class: "quiet small" }, answer.rules_file ? `Rules from ${answer.rules_file}, in mosquitto's words and the order in which they hold. ${editor ? "" : "It is changed there, and read again above."}` : "Rules stand in the configuration ([[security.rule]]); changed there, and read again above."), editor);
    if (isFirst && answer.can_change) set(change, form(context, ask));
    isFirst = false;
  };
  return { element: card("Users and rules", "", words, users.element, change, h("h3", {}, "Rules of access"), rules), ask };
}
