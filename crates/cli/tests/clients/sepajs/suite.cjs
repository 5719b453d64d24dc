// SEPA's JavaScript client, unchanged, against the smart space.

const { SEPA } = require("@arces-wot/sepa-js");
const assert = require("node:assert");

// Two ports, as SEPA has 8000 and 9000.
const port = Number(process.env.BROKER_SEPA_HTTP);
const socketPort = Number(process.env.BROKER_SEPA_WS);
const place = (path) => ({ path, method: "POST", format: "JSON" });
const client = new SEPA({
  host: "127.0.0.1",
  oauth: { enable: false },
  sparql11protocol: { protocol: "http", port, query: place("/query"), update: place("/update") },
  sparql11seprotocol: { protocol: "ws", availableProtocols: { ws: { port: socketPort, path: "/subscribe" } } },
  options: {},
});
const values = (results) => results.results.bindings.map((binding) => binding.o.value).sort();

/** The notifications of a subscription, one after the other. */
function notifications(subscription) {
  const came = [];
  let wake = () => {};
  subscription.on("notification", (it) => { came.push(it); wake(); });
  return async () => {
    while (came.length === 0) await new Promise((resolve) => { wake = resolve; });
    return came.shift();
  };
}

const scenarios = {
  async an_update_is_seen_by_a_query() {
    await client.update("INSERT DATA { <urn:a> <urn:b> 'x' }");
    assert.deepEqual(values(await client.query("SELECT ?o { <urn:a> <urn:b> ?o }")), ["x"]);
  },
  async what_makes_no_sense_is_an_error() {
    await assert.rejects(() => client.update("INSERT"));
  },
  async two_subscriptions_share_a_socket() {
    const subscribe = (name) => client.subscribe(`SELECT ?o { <urn:${name}> <urn:state> ?o }`);
    const [lamp, door] = [subscribe("lamp"), subscribe("door")];
    const [ofLamp, ofDoor] = [notifications(lamp), notifications(door)];
    assert.equal((await ofLamp()).sequence, 0);
    assert.equal((await ofDoor()).sequence, 0);
    await client.update("INSERT DATA { <urn:lamp> <urn:state> 'on' . <urn:door> <urn:state> 'open' }");
    assert.deepEqual(values((await ofLamp()).addedResults), ["on"]);
    assert.deepEqual(values((await ofDoor()).addedResults), ["open"]);
    await client.update("DELETE DATA { <urn:lamp> <urn:state> 'on' }");
    const last = await ofLamp();
    assert.deepEqual([last.sequence, values(last.removedResults)], [2, ["on"]]);
    const over = new Promise((resolve) => lamp.on("unsubscribed", resolve));
    lamp.unsubscribe();
    await over;
  },
};

(async () => {
  let isGood = true;
  for (const [name, scenario] of Object.entries(scenarios)) {
    try {
      await scenario();
      console.log(`ok ${name}`);
    } catch (error) {
      isGood = false;
      console.log(`FAILED ${name}\n${error.stack}`);
    }
  }
  process.exit(isGood ? 0 : 1);
})();
