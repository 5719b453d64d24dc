// Scenarios with npm's coap. Prints a line per scenario; ends with code 1 if one fails.
'use strict';
const coap = require('coap');
const port = Number(process.env.BROKER_COAP);

function ask(method, pathname, payload, more = {}) {
  return new Promise((resolve, reject) => {
    const request = coap.request({ hostname: '127.0.0.1', port, method, pathname, ...more });
    request.on('response', resolve);
    request.on('error', reject);
    request.end(payload);
  });
}

function expect(found, wanted) {
  if (String(found) !== String(wanted)) throw new Error(`${found} is not ${wanted}`);
}

const scenarios = {
  async a_state_is_put_and_read() {
    expect((await ask('PUT', '/ps/node/t', '21')).code, '2.01');
    expect((await ask('GET', '/ps/node/t')).payload, '21');
    expect((await ask('DELETE', '/ps/node/t')).code, '2.02');
    expect((await ask('GET', '/ps/node/t')).code, '4.04');
  },
  async an_unconfirmed_request_is_answered_too() {
    expect((await ask('PUT', '/ps/node/non', 'x', { confirmable: false })).code, '2.01');
  },
  async changes_are_observed() {
    await ask('PUT', '/ps/node/o', '0');
    const stream = await ask('GET', '/ps/node/o', undefined, { observe: true });
    const seen = new Promise((resolve) => {
      stream.on('data', (payload) => { if (String(payload) === '9') resolve(); });
    });
    for (let number = 1; number < 10; number += 1) await ask('PUT', '/ps/node/o', String(number));
    await seen;
    stream.close();
  },
};

(async () => {
  let failed = false;
  for (const [name, scenario] of Object.entries(scenarios)) {
    try {
      await scenario();
      console.log('ok', name);
    } catch (error) {
      failed = true;
      console.log('failed', name, error);
    }
  }
  process.exit(failed ? 1 : 0);
})();
