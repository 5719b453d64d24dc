// As much of MQTT 5 as a page needs to try a broker: connect, subscribe, publish at QoS 0 or 1, receive at 0 or 1.

const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9, UNSUBSCRIBE = 10, UNSUBACK = 11, PINGREQ = 12, DISCONNECT = 14;
// Longer packets are not taken: the broker is told so, and keeps them.
const PACKET_BYTES_MAX = 1 << 18;
const KEEP_ALIVE_S = 30, ANSWER_MS = 10000;
const WORDS = { 0x80: "refused", 0x81: "malformed packet", 0x82: "protocol error", 0x83: "refused", 0x84: "protocol version not supported", 0x85: "client id not valid",
  0x86: "wrong user name or password", 0x87: "not authorized", 0x88: "server unavailable", 0x89: "server busy", 0x8a: "banned", 0x8b: "server shutting down",
  0x8d: "keep alive timeout", 0x8e: "taken over by another connection of this name", 0x8f: "topic filter not valid", 0x90: "topic name not valid",
  0x93: "receive maximum exceeded", 0x95: "packet too large", 0x96: "message rate too high", 0x97: "quota exceeded", 0x98: "ended by an operator", 0x99: "payload format not valid" };
// How long a property's value is; 0: two bytes and as many, -1: two of those, -2: a variable length.
const PROPERTIES = { 0x01: 1, 0x02: 4, 0x03: 0, 0x08: 0, 0x09: 0, 0x0b: -2, 0x11: 4, 0x12: 0, 0x13: 2, 0x15: 0, 0x16: 0, 0x17: 1, 0x18: 4, 0x19: 1, 0x1a: 0,
  0x1c: 0, 0x1f: 0, 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: -1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2a: 1 };
const REASON_STRING = 0x1f;

export const reason = (code) => WORDS[code] ?? `reason 0x${code.toString(16)}`;

function length(value) {
  const bytes = [];
  do { bytes.push((value % 128) | (value > 127 ? 128 : 0)); value = Math.floor(value / 128); } while (value > 0);
  return bytes;
}

const short = (value) => [value >> 8, value & 255];
function text(words) {
  const bytes = new TextEncoder().encode(words);
  return [...short(bytes.length), ...bytes];
}

function packet(first, ...parts) {
  const body = parts.flatMap((part) => [...part]);
  return new Uint8Array([first, ...length(body.length), ...body]);
}

// Reads a packet from its start; what it reads beyond its end is 0.
class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  byte() { return this.bytes[this.at++] ?? 0; }
  short() { return this.byte() * 256 + this.byte(); }
  length() {
    let value = 0;
    for (let place = 0; place < 4; place += 1) {
      const byte = this.byte();
      value += (byte & 127) * 128 ** place;
      if (byte < 128) break;
    }
    return value;
  }
  take(count) { this.at += count; return this.bytes.subarray(this.at - count, this.at); }
  text() { return new TextDecoder().decode(this.take(this.short())); }
  // The reason in words, if there is one.
  properties() {
    let words = "";
    if (this.at >= this.bytes.length) return words;
    const size = this.length(), end = this.at + size;
    while (this.at < end) {
      const name = this.length(), kind = PROPERTIES[name];
      if (kind === undefined) break;
      if (name === REASON_STRING) words = this.text();
      else if (kind > 0) this.take(kind);
      else if (kind === -2) this.length();
      else for (let count = kind; count <= 0; count += 1) this.take(this.short());
    }
    this.at = end;
    return words;
  }
}

// One connection. `onmessage({ topic, payload, qos, retain })`, `onend(words)`.
export class Mqtt {
  constructor({ onmessage, onend }) {
    Object.assign(this, { onmessage, onend, waiting: new Map(), number: 0, buffer: new Uint8Array(0), isOpen: false });
  }

  connect({ clientId, user, password }) {
    return new Promise((done, failed) => {
      const address = new URL("api/v1/mqtt", document.baseURI);
      address.protocol = address.protocol.replace("http", "ws");
      this.socket = new WebSocket(address, "mqtt");
      this.socket.binaryType = "arraybuffer";
      this.waiting.set("connect", { done, failed });
      this.socket.onopen = () => {
        const flags = 2 | (user ? 128 : 0) | (user && password ? 64 : 0);
        const size = PACKET_BYTES_MAX, most = [0x27, size >>> 24, (size >> 16) & 255, (size >> 8) & 255, size & 255];
        this.socket.send(packet(CONNECT << 4, text("MQTT"), [5, flags], short(KEEP_ALIVE_S), length(most.length), most, text(clientId),
          user ? text(user) : [], user && password ? text(password) : []));
      };
      this.socket.onmessage = (event) => this.take(new Uint8Array(event.data));
      this.socket.onclose = () => this.end("the connection has ended (or too many pages speak MQTT, or your role is too low)");
      this.pings = setInterval(() => { if (this.isOpen) this.socket.send(packet(PINGREQ << 4)); }, KEEP_ALIVE_S * 500);
    });
  }

  end(words) {
    clearInterval(this.pings);
    for (const { failed } of this.waiting.values()) failed(new Error(this.last ?? words));
    this.waiting.clear();
    const wasOpen = this.isOpen;
    this.isOpen = false;
    this.socket?.close();
    if (wasOpen) this.onend(this.last ?? words);
  }

  close() {
    this.last = "closed";
    if (this.isOpen) this.socket.send(packet(DISCONNECT << 4));
    this.end("closed");
  }

  take(bytes) {
    const all = new Uint8Array(this.buffer.length + bytes.length);
    all.set(this.buffer);
    all.set(bytes, this.buffer.length);
    let at = 0;
    while (all.length - at >= 2) {
      const head = new Reader(all.subarray(at, at + 5));
      const first = head.byte(), size = head.length();
      if (size > PACKET_BYTES_MAX) return this.end("a packet was too large");
      // Without all of its length, or of itself: the rest comes.
      if (all[at + head.at - 1] > 127 || all.length - at < head.at + size) break;
      this.handle(first, new Reader(all.subarray(at + head.at, at + head.at + size)));
      at += head.at + size;
    }
    this.buffer = all.slice(at);
  }

  handle(first, reader) {
    const kind = first >> 4;
    if (kind === CONNACK) {
      reader.byte();
      const code = reader.byte();
      this.isOpen = code === 0;
      this.settle("connect", code, reader.properties());
    } else if (kind === PUBLISH) this.receive(first, reader);
    else if (kind === PUBACK) {
      const id = reader.short(), code = reader.byte();
      this.settle(id, code, reader.properties());
    } else if (kind === SUBACK || kind === UNSUBACK) {
      const id = reader.short(), words = reader.properties();
      this.settle(id, reader.byte(), words);
    } else if (kind === DISCONNECT) {
      const code = reader.byte(), words = reader.properties();
      this.last = `${reason(code)}${words ? `: ${words}` : ""}`;
    }
  }

  settle(id, code, words) {
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (code >= 0x80) waiting?.failed(new Error(`${reason(code)}${words ? `: ${words}` : ""}`));
    else waiting?.done(code);
  }

  receive(first, reader) {
    const qos = (first >> 1) & 3, topic = reader.text(), id = qos ? reader.short() : 0;
    reader.properties();
    this.onmessage({ topic, qos, retain: (first & 1) === 1, payload: reader.bytes.slice(reader.at) });
    if (qos === 1) this.socket.send(packet(PUBACK << 4, short(id)));
  }

  ask(first, make) {
    if (!this.isOpen) return Promise.reject(new Error("not connected"));
    this.number = (this.number % 65535) + 1;
    const id = this.number;
    return new Promise((done, failed) => {
      const late = setTimeout(() => { this.waiting.delete(id); failed(new Error("no answer within 10 s: the broker makes this wait")); }, ANSWER_MS);
      const over = (then) => (value) => { clearTimeout(late); then(value); };
      this.waiting.set(id, { done: over(done), failed: over(failed) });
      this.socket.send(packet(first, ...make(short(id))));
    });
  }

  subscribe(filter, qos) { return this.ask((SUBSCRIBE << 4) | 2, (id) => [id, [0], text(filter), [qos]]); }

  unsubscribe(filter) { return this.ask((UNSUBSCRIBE << 4) | 2, (id) => [id, [0], text(filter)]); }

  // At QoS 0 nobody answers.
  publish(topic, payload, { qos = 0, retain = false } = {}) {
    const bytes = new TextEncoder().encode(payload), first = (PUBLISH << 4) | (qos << 1) | (retain ? 1 : 0);
    if (qos) return this.ask(first, (id) => [text(topic), id, [0], bytes]);
    if (!this.isOpen) return Promise.reject(new Error("not connected"));
    this.socket.send(packet(first, text(topic), [0], bytes));
    return Promise.resolve(0);
  }
}
