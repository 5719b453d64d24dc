'use strict'
// Scenarios with MQTT.js. Prints a line per scenario; ends with code 1 if one fails.

const { deepStrictEqual: expect, ok } = require('node:assert')
const { Peer } = require('./peer.cjs')
const version5 = require('./version5.cjs')

const range = count => [...Array(count).keys()]

const common = {
  async everyQualityOfServiceIsTheLowerOfTwo(version, door) {
    const publisher = await Peer.open(version, 'publisher', { door })
    for (const subscribed of range(3)) {
      const subscriber = await Peer.open(version, 'subscriber', { door })
      expect(await subscriber.subscribe('a/+', { qos: subscribed }), [subscribed])
      for (const published of range(3)) {
        await publisher.publish([['a/b', `${published}`, published]])
        expect(await subscriber.receive(), ['a/b', `${published}`, Math.min(subscribed, published), false])
      }
      await subscriber.disconnect()
    }
    await publisher.disconnect()
  },

  async largePayloadsArriveWhole(version, door) {
    const client = await Peer.open(version, 'client', { door })
    await client.subscribe('large', { qos: 2 })
    const payload = Buffer.from(range(200 * 1024).map(number => Math.floor((number * 7) / 3) % 256))
    for (const qos of range(3)) {
      await client.publish([['large', payload, qos]])
      const message = await client.whole()
      ok(payload.equals(message.payload), 'the payload changed on its way')
      expect(message.packet.qos, qos)
    }
    await client.disconnect()
  },

  async retainedMessagesWaitAndCanBeDeleted(version, door) {
    const publisher = await Peer.open(version, 'publisher', { door })
    await publisher.publish([['r/a', 'old', 1, true], ['r/a', 'new', 1, true]])
    const late = await Peer.open(version, 'late', { door })
    await late.subscribe('r/+', { qos: 2 })
    expect(await late.receive(), ['r/a', 'new', 1, true])
    await publisher.publish([['r/a', '', 1, true], ['r/end', '', 1]])
    expect(await late.receiveMany(2), [['r/a', '', 1, false], ['r/end', '', 1, false]])
    const later = await Peer.open(version, 'later', { door })
    await later.subscribe('r/#', { qos: 1 })
    await publisher.publish([['r/end', 'x', 1]])
    expect(await later.receive(), ['r/end', 'x', 1, false])
    for (const peer of [late, later, publisher]) await peer.disconnect()
  },

  async wills(version, door) {
    const watcher = await Peer.open(version, 'watcher', { door })
    await watcher.subscribe('will/#', { qos: 2 })
    const polite = { topic: 'will/polite', payload: Buffer.from('gone'), qos: 1, retain: false }
    await (await Peer.open(version, 'polite', { door, will: polite })).disconnect()
    for (const qos of range(3)) {
      const will = { topic: 'will/x', payload: Buffer.from(`gone ${qos}`), qos, retain: false }
      await (await Peer.open(version, 'mortal', { door, will })).cut()
      expect(await watcher.receive(), ['will/x', `gone ${qos}`, qos, false])
    }
    await watcher.disconnect()
  },

  async aSessionGoesOnWithWhatItMissed(version, door) {
    const publisher = await Peer.open(version, 'publisher', { door })
    const hello = { door, clean: false }
    if (version === 5) hello.properties = { sessionExpiryInterval: 600 }
    const keeper = await Peer.open(version, 'keeper', hello)
    expect(keeper.hello.sessionPresent, false)
    await keeper.subscribe(['one', 'two'], { qos: 2 })
    await keeper.disconnect()
    const missed = range(200).map(number => [number % 2 ? 'two' : 'one', `${number}`, 1 + (number % 2), false])
    await publisher.publish(missed)
    const back = await Peer.open(version, 'keeper', hello)
    // MQTT 3.1 has no words for it.
    if (version > 3) expect(back.hello.sessionPresent, true)
    const found = await back.receiveMany(200)
    // MQTT.js hands out QoS 2 when it is released, later than QoS 1.
    for (const qos of [1, 2]) expect(found.filter(each => each[2] === qos), missed.filter(each => each[2] === qos))
    await publisher.publish([['one', 'end', 1]])
    expect(await back.receive(), ['one', 'end', 1, false])
    await back.disconnect()
    const clean = await Peer.open(version, 'keeper', { door })
    expect(clean.hello.sessionPresent, false)
    await clean.disconnect()
    await publisher.disconnect()
  },

  async aSharedSubscriptionDivides(version, door) {
    const publisher = await Peer.open(version, 'publisher', { door })
    const members = await Promise.all(range(3).map(number => Peer.open(version, `member-${number}`, { door })))
    for (const member of members) await member.subscribe(['$share/group/job/#', 'end'], { qos: 1 })
    const jobs = range(60).map(number => ['job/x', String(number).padStart(2, '0'), 1, false])
    await publisher.publish([...jobs, ['end', '', 1]])
    const done = []
    for (const member of members) {
      const mine = []
      for (let next; (next = await member.receive())[0] !== 'end'; ) mine.push(next)
      ok(mine.length > 0, 'a member got nothing')
      expect(mine, [...mine].sort())
      done.push(...mine)
      await member.disconnect()
    }
    expect(done.sort(), jobs)
    await publisher.disconnect()
  },

  async anEndOfASubscriptionIsAnEnd(version, door) {
    const client = await Peer.open(version, 'client', { door })
    await client.subscribe(['a', 'b'], { qos: 1 })
    const codes = await client.unsubscribe('a')
    if (version === 5) expect(codes, [0])
    await client.publish([['a', 'unheard', 1], ['b', 'heard', 1]])
    expect(await client.receive(), ['b', 'heard', 1, false])
    await client.disconnect()
  },

  async exactlyOnceHoldsOverBrokenConnections(version, door) {
    for (const breaker of ['publisher', 'subscriber']) {
      const hello = { door, clean: false, reconnectPeriod: 1 }
      if (version === 5) hello.properties = { sessionExpiryInterval: 600 }
      // Sessions stay behind: none may get what is meant for another.
      const topic = `once/${version}/${door}/${breaker}`
      const publisher = await Peer.open(version, `publisher-${version}-${door}-${breaker}`, hello)
      const subscriber = await Peer.open(version, `subscriber-${version}-${door}-${breaker}`, hello)
      await subscriber.subscribe(topic, { qos: 2 })
      const messages = range(300).map(number => [topic, `${number}`, 2, false])
      const published = publisher.publish(messages)
      const broken = breaker === 'publisher' ? publisher : subscriber
      const found = []
      while (found.length < 300) {
        found.push(await subscriber.receive())
        if (found.length % 50 === 25) broken.client.stream.destroy()
      }
      expect(found, messages)
      await published
      await publisher.publish([[topic, 'end', 2]])
      expect(await subscriber.receive(), [topic, 'end', 2, false])
      await publisher.disconnect()
      await subscriber.disconnect()
    }
  },

  async aThousandMessagesArriveInOrder(version, door) {
    const publisher = await Peer.open(version, 'publisher', { door })
    const subscriber = await Peer.open(version, 'subscriber', { door })
    await subscriber.subscribe('n/#', { qos: 2 })
    for (const qos of range(3)) {
      const messages = range(1000).map(number => ['n/x', `${number}`, qos, false])
      await publisher.publish(messages)
      expect(await subscriber.receiveMany(1000), messages)
      await publisher.publish([['n/end', '', qos]])
      expect(await subscriber.receive(), ['n/end', '', qos, false])
    }
    await subscriber.disconnect()
    await publisher.disconnect()
  }
}

async function run(name, scenario) {
  try {
    await scenario()
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`FAILED ${name}\n${error.stack}`)
    process.exitCode = 1
  }
}

async function main() {
  for (const door of ['mqtt', 'ws', 'mqtts', 'wss']) {
    for (const version of [4, 5]) {
      for (const [name, scenario] of Object.entries(common)) {
        await run(`${name} version ${version} ${door}`, () => scenario(version, door))
      }
    }
  }
  // MQTT 3.1 has a WebSocket subprotocol of its own.
  for (const door of ['mqtt', 'ws']) {
    for (const [name, scenario] of Object.entries(common)) {
      await run(`${name} version 3 ${door}`, () => scenario(3, door))
    }
  }
  for (const [name, scenario] of Object.entries(version5)) await run(name, scenario)
  // Clients of failed scenarios must not keep the process alive.
  process.exit()
}

main()
