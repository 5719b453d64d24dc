// This node of a cluster: what it does, since when and why, and how far its copies are. There is no such card on a broker that is alone,
// and none on a node that stands by, which has no page.

import { h, set, card, number, span } from "./dom.js";
import { get } from "./api.js";

// A card with a function that fills it, with `list` for its rows; hidden until there is a cluster.
export function clusterCard(list) {
  const badge = h("span"), words = h("div"), trouble = h("p", { class: "error", role: "alert" }, "");
  const element = card("Cluster", "c6", h("div", { class: "row head" }, badge), trouble, words,
    h("p", { class: "quiet small" }, "All nodes: ", h("code", {}, "tidegate cluster status"), " and ", h("code", {}, "why")));
  element.hidden = true;
  const ask = async () => {
    const { cluster } = await get("cluster");
    element.hidden = cluster === null;
    if (cluster === null) return;
    set(badge, cluster.trouble === null ? h("span", { class: "badge good" }, cluster.role) : h("span", { class: "badge bad" }, "cut off"));
    set(trouble, cluster.trouble ?? "");
    set(words, list([
      ["Node", `${cluster.node} of ${cluster.cluster}`],
      ["Has the log", `${cluster.owner ?? "nobody"}${cluster.owner_address === null ? "" : ` at ${cluster.owner_address}`}, epoch ${cluster.epoch}`],
      [`It is ${cluster.role} for`, cluster.since_s === null ? "–" : span(cluster.since_s)],
      ["Why", cluster.handover ?? "–"],
      ["Not kept elsewhere yet", `${number(cluster.lag)} changes of the log`],
      ["This process", `took over ${number(cluster.takeovers)} times, was overtaken ${number(cluster.fenced)}`],
    ]));
  };
  return { element, ask };
}
