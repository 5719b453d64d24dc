'use strict'
// A client of MQTT.js whose every step waits for what it needs, and for nothing else.

const { once } = require('node:events')
const fs = require('node:fs')
const mqtt = require('mqtt')

const PATIENCE = 20_000
const host = process.env.BROKER_HOST
const path = { mqtt: '', mqtts: '', ws: '/mqtt', wss: '/mqtt' }

class Peer {
  // Connects and waits for the CONNACK.
  static async open(version, clientId, options = {}) {
    const { door = 'mqtt', ...more } = options
    const peer = new Peer()
    peer.arrived = []
    peer.waiting = []
    peer.client = mqtt.connect(`${door}://${host}:${process.env['BROKER_' + door.toUpperCase()]}${path[door]}`, {
      clientId,
      protocolVersion: version,
      protocolId: version === 3 ? 'MQIsdp' : 'MQTT',
      reconnectPeriod: 0,
      connectTimeout: PATIENCE,
      clean: true,
      ca: door.endsWith('s') && door !== 'ws' ? fs.readFileSync(process.env.BROKER_CA) : undefined,
      ...more
    })
    peer.client.on('message', (topic, payload, packet) => peer.#arrive({ topic, payload, packet }))
    peer.client.on('error', () => {})
    peer.acks = []
    peer.client.on('packetreceive', packet => {
      if (['puback', 'pubrec', 'pubcomp', 'unsuback'].includes(packet.cmd)) peer.acks.push(packet)
    })
    const [hello] = await inTime(once(peer.client, 'connect'), 'CONNACK')
    peer.hello = hello
    return peer
  }

  #arrive(message) {
    const reader = this.waiting.shift()
    if (reader) reader(message)
    else this.arrived.push(message)
  }

  // Subscribes and returns the granted qualities of service (or reason codes).
  async subscribe(filter, options = { qos: 0 }) {
    const granted = await inTime(this.client.subscribeAsync(filter, options), 'SUBACK')
    return granted.map(each => each.qos)
  }

  async unsubscribe(filter) {
    await inTime(this.client.unsubscribeAsync(filter), 'UNSUBACK')
    return this.acks.findLast(packet => packet.cmd === 'unsuback').granted ?? []
  }

  // Publishes messages [topic, payload, qos, retain] one behind the other and waits until all are acknowledged.
  async publish(messages, properties) {
    const all = messages.map(([topic, payload, qos = 0, retain = false]) =>
      this.client.publishAsync(topic, payload, { qos, retain, properties })
    )
    await inTime(Promise.all(all), 'acknowledgements')
  }

  // The next message with everything about it.
  whole() {
    if (this.arrived.length) return Promise.resolve(this.arrived.shift())
    return inTime(new Promise(resolve => this.waiting.push(resolve)), 'a message')
  }

  // The next message as [topic, payload, qos, retain].
  async receive() {
    const { topic, payload, packet } = await this.whole()
    return [topic, payload.toString(), packet.qos, packet.retain]
  }

  async receiveMany(count) {
    const messages = []
    while (messages.length < count) messages.push(await this.receive())
    return messages
  }

  async disconnect(options) {
    await inTime(this.client.endAsync(false, options), 'the end')
  }

  // Breaks the connection without a word.
  async cut() {
    const closed = once(this.client, 'close')
    this.client.stream.destroy()
    await inTime(closed, 'the close')
  }
}

// A guard: fails if it takes too long.
function inTime(promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited too long for ${what}`)), PATIENCE)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

module.exports = { Peer, inTime, mqtt }
