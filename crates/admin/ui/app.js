// The frame: which page is shown, who one is, light or dark.

import { h, set, toast } from "./dom.js";
import { Live, Problem, logIn, send, whenLoginIsNeeded, whoAmI } from "./api.js";
import { now } from "./now.js";
import { clients } from "./clients.js";
import { topics } from "./topics.js";
import { drops } from "./drops.js";
import { bridges } from "./bridges.js";
import { space } from "./space.js";
import { limits } from "./limits.js";
import { system } from "./system.js";
import { demo } from "./demo.js";

const PAGES = { now, clients, topics, bridges, drops, space, limits, system, demo };
const RANKS = ["viewer", "operator", "admin"];
const main = document.getElementById("main");
const live = new Live();
const context = {
  live,
  session: {},
  may: (role) => RANKS.indexOf(context.session.role) >= RANKS.indexOf(role),
  // Does something that changes the broker, and says what came of it; `undo` can be had for a while.
  act: async (words, work, undo) => {
    try {
      const answer = await work();
      toast(words, undo);
      return answer ?? true;
    } catch (problem) {
      toast(`Not done: ${problem.message}`);
      return null;
    }
  },
};
let leave = () => {};

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const page = PAGES[name] ? name : "now";
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave();
  document.title = `${PAGES[page].title} – Tidegate`;
  const place = h("div");
  set(main, h("h1", {}, PAGES[page].title), place);
  let argument = "";
  try { argument = decodeURIComponent(rest.join("/")); } catch { argument = rest.join("/"); }
  leave = PAGES[page].show(place, context, argument) ?? (() => {});
}

function theme(wanted) {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const chosen = wanted ?? localStorage.getItem("theme") ?? system;
  document.documentElement.dataset.theme = chosen;
  const button = document.getElementById("theme");
  button.textContent = chosen === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", chosen === "dark" ? "Use light colours" : "Use dark colours");
}

function showLogin(problem) {
  live.close();
  leave();
  leave = () => {};
  const user = h("input", { name: "user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const error = h("p", { class: "error", role: "alert" }, problem ?? "");
  const submit = async (event) => {
    event.preventDefault();
    try {
      await logIn(user.value, password.value);
      await begin();
    } catch (failure) {
      set(error, failure instanceof Problem ? failure.message : "The broker does not answer.");
      password.value = "";
      password.focus();
    }
  };
  set(main, h("section", { class: "card login" }, h("h1", {}, "Log in"),
    h("form", { onsubmit: submit }, h("label", {}, "User", user), h("label", {}, "Password", password), error,
      h("button", { class: "main", type: "submit" }, "Log in"))));
  user.focus();
}

function showSession() {
  const { session } = context;
  set(document.getElementById("user"), session.user ? `${session.user} (${session.role})` : "");
  document.getElementById("logout").hidden = session.login !== "done";
}

async function begin() {
  context.session = await whoAmI();
  showSession();
  if (context.session.login === "needed") return showLogin();
  live.open();
  route();
}

whenLoginIsNeeded(() => {
  context.session = {};
  showSession();
  showLogin("The session has ended.");
});
set(document.getElementById("nav"), Object.entries(PAGES).map(([name, page]) =>
  h("a", { href: `#/${name}`, "data-page": name }, page.title)));
document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", next);
  theme(next);
});
document.getElementById("logout").addEventListener("click", async () => {
  await send("DELETE", "login").catch(() => {});
  context.session = {};
  showSession();
  showLogin();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());
window.addEventListener("hashchange", () => { if (context.session.role) { route(); main.focus({ preventScroll: true }); scrollTo(0, 0); } });
live.addEventListener("state", () => set(document.getElementById("link"), live.state));
live.on("tick", (tick) => {
  const badge = document.getElementById("level");
  const { level, name } = tick.pressure;
  const { mood } = tick.now;
  // Calm is said only where nothing is wrong, whatever the level is.
  const words = level === 0 && mood !== "calm" ? mood : `level ${level} ${name}`;
  const kind = level > 2 || mood === "trouble" ? "bad" : level > 0 || mood === "notice" ? "warn" : "good";
  if (badge.textContent === words && badge.classList.contains(kind)) return;
  badge.className = `badge ${kind}`;
  badge.title = tick.now.text;
  set(badge, words);
});
theme();
begin().catch((problem) => set(main, h("p", { class: "error", role: "alert" }, `The broker does not answer: ${problem.message}`)));
