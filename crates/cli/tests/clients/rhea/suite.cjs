// Scenarios with rhea. Prints a line per scenario; ends with code 1 if one fails.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const rhea = require("rhea");

const HOST = "127.0.0.1";
const PORT = Number(process.env.BROKER_AMQP);

// Each connection is a client of its own: it has a container-id of its own.
function connect(more = {}) {
  const container = rhea.create_container();
  const connection = container.connect({ host: HOST, port: PORT, reconnect: false, ...more });
  connection.on("disconnected", () => {});
  return connection;
}

const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

async function messages(connection, options, count) {
  const receiver = connection.open_receiver(options);
  await once(receiver, "receiver_open");
  const found = [];
  const all = new Promise((resolve) => {
    receiver.on("message", ({ message }) => {
      found.push(message);
      if (found.length === count) resolve(found);
    });
  });
  return { receiver, all };
}

async function sendable(connection, options) {
  const sender = connection.open_sender(options);
  await once(sender, "sendable");
  return sender;
}

const scenarios = {
  async a_message_comes_back_with_what_it_carries() {
    const connection = connect();
    const { all } = await messages(connection, "rhea/+/t", 1);
    const sender = await sendable(connection, "rhea/7/t");
    const answer = once(sender, "accepted");
    sender.send({ body: "21.5", correlation_id: "c-1", reply_to: "rhea/replies", application_properties: { n: 3 } });
    await answer;
    const [message] = await all;
    assert.deepStrictEqual([message.body, message.to, message.correlation_id], ["21.5", "rhea/7/t", "c-1"]);
    assert.deepStrictEqual(message.application_properties, { n: "3" });
    connection.close();
  },

  async a_thousand_messages_arrive_in_order() {
    const [from, to] = [connect(), connect()];
    const { all } = await messages(to, { source: "rhea/many", credit_window: 50 }, 1000);
    const sender = from.open_sender("rhea/many");
    let next = 0;
    sender.on("sendable", () => {
      while (next < 1000 && sender.sendable()) sender.send({ body: String(next++) });
    });
    const bodies = (await all).map(({ body }) => body);
    assert.deepStrictEqual(bodies, Array.from({ length: 1000 }, (_, number) => String(number)));
    from.close();
    to.close();
  },

  async who_asks_for_no_filter_is_refused() {
    const connection = connect();
    const receiver = connection.open_receiver("rhea/#/x");
    const { receiver: refused } = await once(receiver, "receiver_error");
    assert.strictEqual(refused.error.condition, "amqp:invalid-field");
    const sender = await sendable(connection, "rhea/fine");
    sender.send({ body: "x" });
    await once(sender, "accepted");
    connection.close();
  },

  async over_tls_it_is_the_same() {
    const tls = { transport: "tls", host: process.env.BROKER_HOST, port: Number(process.env.BROKER_AMQPS) };
    const connection = connect({ ...tls, ca: [fs.readFileSync(process.env.BROKER_CA)] });
    const { all } = await messages(connection, { source: "rhea/tls", snd_settle_mode: 1 }, 1);
    const sender = await sendable(connection, { target: "rhea/tls", snd_settle_mode: 1 });
    sender.send({ body: rhea.message.data_section(Buffer.from("secure")) });
    assert.strictEqual((await all)[0].body.content.toString(), "secure");
    connection.close();
  },
};

(async () => {
  let failed = false;
  for (const [name, scenario] of Object.entries(scenarios)) {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error("it took too long")), 15000));
    try {
      await Promise.race([scenario(), late]);
      console.log(`ok ${name}`);
    } catch (error) {
      failed = true;
      console.log(`failed ${name}: ${error.stack}`);
    }
  }
  process.exit(failed ? 1 : 0);
})();
