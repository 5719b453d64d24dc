'use strict'
// Scenarios of MQTT 5 alone.

const { deepStrictEqual: expect, ok } = require('node:assert')
const { once } = require('node:events')
const { Peer, inTime, mqtt } = require('./peer.cjs')

const open = (name, options) => Peer.open(5, name, options)
const codes = (peer, kind) => peer.acks.filter(packet => packet.cmd === kind).map(packet => packet.reasonCode ?? 0)

module.exports = {
  async propertiesTravelUnchanged() {
    const client = await open('client')
    await client.subscribe('p', { qos: 1 })
    const sent = {
      payloadFormatIndicator: true,
      contentType: 'text/plain',
      responseTopic: 'answers',
      correlationData: Buffer.from([0, 255]),
      userProperties: { unit: 'celsius', twice: ['1', '2'] }
    }
    await client.publish([['p', '21 °C', 1]], sent)
    const { payload, packet } = await client.whole()
    expect(payload.toString(), '21 °C')
    expect(packet.properties.userProperties.unit, 'celsius')
    expect(packet.properties.userProperties.twice, ['1', '2'])
    for (const name of ['payloadFormatIndicator', 'contentType', 'responseTopic', 'correlationData']) {
      expect(packet.properties[name], sent[name])
    }
    await client.disconnect()
  },

  async reasonCodesAreExact() {
    const client = await open('client')
    await client.publish([['nobody', '', 1]])
    expect(codes(client, 'puback'), [16])
    await client.publish([['nobody', '', 2]])
    expect(codes(client, 'pubrec'), [16])
    expect(codes(client, 'pubcomp'), [0])
    // Nobody writes to $SYS.
    const refused = await client.publish([['$SYS/x', '', 1]]).catch(error => error)
    expect(refused.code, 0x87)
    expect(await client.unsubscribe('never'), [17])
    await client.disconnect()
  },

  async identifiersOfSubscriptionsArrive() {
    const client = await open('client')
    await client.subscribe('i/#', { qos: 1, properties: { subscriptionIdentifier: 7 } })
    await client.subscribe('i/+', { qos: 1, properties: { subscriptionIdentifier: 268435455 } })
    await client.publish([['i/a', '', 1], ['i/a/b', '', 1]])
    const both = (await client.whole()).packet.properties.subscriptionIdentifier
    expect(both.sort((a, b) => a - b), [7, 268435455])
    expect([(await client.whole()).packet.properties.subscriptionIdentifier].flat(), [7])
    await client.disconnect()
  },

  async optionsOfSubscriptionsHold() {
    const [client, other] = [await open('client'), await open('other')]
    await other.publish([['o/kept', 'kept', 1, true]])
    await client.subscribe('o/#', { qos: 1, nl: true, rap: true, rh: 2 })
    await client.publish([['o/own', '', 1]])
    await other.publish([['o/other', 'x', 1, true]])
    expect(await client.receive(), ['o/other', 'x', 1, true])
    await other.publish([['o/kept', '', 1, true], ['o/other', '', 1, true]])
    await client.disconnect()
    await other.disconnect()
  },

  async topicAliasesWorkBothWays() {
    const publisher = await open('publisher', { autoAssignTopicAlias: true })
    const subscriber = await open('subscriber', { properties: { topicAliasMaximum: 2 } })
    await subscriber.subscribe('long/#', { qos: 1 })
    const aliases = []
    subscriber.client.on('packetreceive', packet => {
      if (packet.cmd === 'publish') aliases.push(packet.properties?.topicAlias)
    })
    const topics = ['long/a', 'long/b', 'long/c', 'long/a', 'long/a', 'long/b', 'long/c', 'long/c']
    const messages = topics.map((topic, number) => [topic, `${number}`, 1, false])
    for (const message of messages) await publisher.publish([message])
    expect(await subscriber.receiveMany(messages.length), messages)
    ok(aliases.some(alias => alias === 1 || alias === 2), `aliases were never used: ${aliases}`)
    await publisher.disconnect()
    await subscriber.disconnect()
  },

  async aRequestIsAnswered() {
    const [server, client] = [await open('server'), await open('client', { door: 'ws' })]
    await server.subscribe('double', { qos: 1 })
    await client.subscribe('answers/client', { qos: 1 })
    for (let number = 0; number < 10; number++) {
      const correlationData = Buffer.from(`${number}`)
      await client.publish([['double', `${number}`, 1]], { responseTopic: 'answers/client', correlationData })
      const { payload, packet } = await server.whole()
      const answer = { correlationData: packet.properties.correlationData }
      await server.publish([[packet.properties.responseTopic, `${2 * Number(payload)}`, 1]], answer)
      const answered = await client.whole()
      expect(answered.payload.toString(), `${2 * number}`)
      expect(answered.packet.properties.correlationData, correlationData)
    }
    await server.disconnect()
    await client.disconnect()
  },

  async theBrokerSaysWhatItOffers() {
    const client = await open('', { properties: { sessionExpiryInterval: 4294967295 } })
    const { properties, reasonCode, sessionPresent } = client.hello
    expect([reasonCode, sessionPresent], [0, false])
    ok(properties.assignedClientIdentifier.length > 0)
    expect(properties.maximumPacketSize, 1048576)
    expect(properties.sessionExpiryInterval, 7 * 86400)
    ok(properties.receiveMaximum > 0 && properties.topicAliasMaximum > 0)
    await client.disconnect()
  },

  async limitsOfTheClientAreKept() {
    const publisher = await open('publisher')
    const subscriber = await open('subscriber', { properties: { receiveMaximum: 1, maximumPacketSize: 100 } })
    await subscriber.subscribe('slow', { qos: 2 })
    const messages = Array.from({ length: 50 }, (_, number) => ['slow', `${number}`, 1 + (number % 2), false])
    await publisher.publish([['slow', Buffer.alloc(200), 1], ...messages])
    expect(await subscriber.receiveMany(50), messages)
    await publisher.disconnect()
    await subscriber.disconnect()
  },

  async messagesExpire() {
    const client = await open('client')
    await client.subscribe('e', { qos: 1 })
    await client.publish([['e', '', 1]], { messageExpiryInterval: 100 })
    ok([99, 100].includes((await client.whole()).packet.properties.messageExpiryInterval))
    await client.disconnect()
  },

  async aTakeoverIsTold() {
    const first = await open('twin')
    const told = once(first.client, 'disconnect')
    const second = await open('twin', { door: 'ws' })
    const [packet] = await inTime(told, 'DISCONNECT')
    expect(packet.reasonCode, 0x8e)
    ok(packet.properties.reasonString.length > 0)
    await second.disconnect()
  },

  async aWillWaitsForItsDelayOrTheEndOfTheSession() {
    const watcher = await open('watcher')
    await watcher.subscribe('will', { qos: 1 })
    const properties = { willDelayInterval: 600, contentType: 'text/plain' }
    const will = { topic: 'will', payload: Buffer.from('gone'), qos: 1, retain: false, properties }
    const hello = { clean: false, properties: { sessionExpiryInterval: 600 }, will }
    await (await open('mortal', hello)).cut()
    const again = await open('mortal', hello)
    expect(again.hello.sessionPresent, true)
    await again.cut()
    await (await open('mortal')).disconnect()
    const { payload, packet } = await watcher.whole()
    expect([payload.toString(), packet.properties.contentType], ['gone', 'text/plain'])
    expect(packet.properties.willDelayInterval, undefined)
    await watcher.disconnect()
  },

  async authenticationMethodsAreRefused() {
    const { BROKER_HOST: host, BROKER_MQTT: port } = process.env
    const properties = { authenticationMethod: 'SCRAM' }
    const client = mqtt.connect(`mqtt://${host}:${port}`, { protocolVersion: 5, reconnectPeriod: 0, properties })
    const [error] = await inTime(once(client, 'error'), 'a refusal')
    expect(error.code, 0x8c)
    client.end(true)
  }
}
