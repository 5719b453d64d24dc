// The editor page of the smart space. It asks /query and /update as every client does; the browser sends the password.

import { h, card } from "./dom.js";
import { Editor } from "./editor.js";
import { result } from "./result.js";

const ENDPOINTS = [["query", "SPARQL 1.1 queries (GET, POST)"], ["update", "SPARQL 1.1 updates (POST)"], ["sparql", "both"],
  ["store", "graphs as a whole (Graph Store Protocol)"], ["check", "what has changed since"], ["subscribe", "WebSocket: standing queries, as SEPA has them"]];
const ACCEPT = "application/sparql-results+json, application/n-triples;q=0.9, application/json;q=0.8";

async function run(text, isUpdate) {
  const response = await fetch(isUpdate ? "update" : "query", { method: "POST", body: text,
    headers: { "content-type": isUpdate ? "application/sparql-update" : "application/sparql-query", accept: ACCEPT } });
  const kind = response.headers.get("content-type") ?? "";
  const body = kind.includes("json") ? await response.json() : await response.text();
  if (!response.ok) throw new Error(body?.detail ?? (body || `the space answered ${response.status}`));
  return result(body);
}

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
const editor = new Editor({ run, mayUpdate: true });
document.getElementById("main").append(card(null, "", editor.element), h("div", { class: "below" },
  card("Endpoints", "", h("ul", {}, ENDPOINTS.map(([name, about]) => h("li", {}, h("code", {}, `${location.origin}/${name}`), ` ${about}`))))));
