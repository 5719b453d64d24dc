#!/usr/bin/env python3
"""Everything at once, for as long as you like: connections that come and go at all doors, hostile texts, floods, and kill -9.

Two parts. In the first the broker is killed again and again; what it acknowledged to publishers of QoS 1 has to reach a
lasting subscriber. In the second it
lives on, is pressed in the same way, and has to give its memory back: within a tenth of what it had after the first storm.
What it had at its start is printed beside that. In both nothing may end the process or one of its parts.

Run it with `cargo xtask soak --minutes 30`. Loopback only; needs nothing but Python 3.8. Exits with 0 if all of it held.
"""
import argparse, base64, http.client, json, os, random, re, socket, struct, subprocess, sys, tempfile, threading, time
import urllib.parse

sys.dont_write_bytecode = True
from hostile import documents, ssap, texts  # noqa: E402

HERE = "127.0.0.1"
DOORS = ("mqtt", "ws", "admin", "http", "ssap", "coap", "sn", "http-topics", "amqp")
PATIENCE = 60  # Nothing takes that long, unless it never happens.
QUIET = 15  # Seconds after which memory is looked at: allocators give back with delay.
WARMING = 1  # Storms before memory is looked at first: the program itself has been read from disk by then.
PUBLISHERS = 4
FLOOD = 20_000  # Messages of one flood.
TRIPLES = 60_000  # What is loaded, sorted and cleared.


class Broker:
    """One life of the process."""

    def __init__(self, binary, folder):
        self.log_path = os.path.join(folder, "log")
        self.log = open(self.log_path, "ab")
        command = [binary, "serve", "-c", "/dev/null", "--data", os.path.join(folder, "data"), "--log-level", "warn"]
        for door in DOORS:
            command += [f"--{door}", f"{HERE}:0"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        banner = self.process.stdout.readline()
        names = {"mqtt": r"  mqtt \S+:(\d+)", "ws": r"ws://\S+:(\d+)/", "admin": r"admin http://\S+:(\d+)",
                 "http": r"sparql http://\S+:(\d+)", "ssap": r"  ssap \S+:(\d+)"}
        self.ports = {}
        for door, pattern in names.items():
            found = re.search(pattern, banner)
            if not found:
                raise SystemExit(f"no {door} in {banner!r}")
            self.ports[door] = int(found.group(1))

    def is_alive(self):
        return self.process.poll() is None

    def kilobytes(self, name):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(name + r":\s+(\d+)", status.read()).group(1))

    def connect(self, door, timeout=10):
        return socket.create_connection((HERE, self.ports[door]), timeout)

    def ask(self, method, path, body=None, headers=None, door="http", timeout=PATIENCE):
        """Status and answer; 0 if there was none."""
        connection = http.client.HTTPConnection(HERE, self.ports[door], timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
        finally:
            connection.close()

    def metric(self, name):
        """The sum of a family."""
        status, page = self.ask("GET", "/metrics", door="admin")
        if status != 200:
            return None
        lines = re.findall(rf"^tidegate_{name}(?:{{[^}}]*}})? (\d+)", page.decode(), re.M)
        return sum(map(int, lines))

    def end(self, signal="kill"):
        getattr(self.process, signal)()
        self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.log.close()


# MQTT, as little of it as is needed.

def length(number):
    out = b""
    while True:
        number, low = divmod(number, 128)
        out += bytes([low | (128 if number else 0)])
        if not number:
            return out


def text(words):
    words = words.encode()
    return struct.pack("!H", len(words)) + words


def packet(head, body=b""):
    return bytes([head]) + length(len(body)) + body


def hello(name, is_lasting=False):
    return packet(0x10, text("MQTT") + bytes([4, 0 if is_lasting else 2]) + struct.pack("!H", 60) + text(name))


def publish(topic, payload, identifier=0):
    identified = struct.pack("!H", identifier) if identifier else b""
    return packet(0x32 if identifier else 0x30, text(topic) + identified + payload)


class Mqtt:
    def __init__(self, broker, name, is_lasting=False):
        self.socket, self.buffer = broker.connect("mqtt"), b""
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(hello(name, is_lasting))
        head, body = self.read()
        if head != 0x20 or body[1] != 0:
            raise OSError(f"refused: {body!r}")

    def read(self):
        while True:
            at, size, shift = 1, 0, 0
            while at < len(self.buffer):
                size |= (self.buffer[at] & 127) << shift
                shift += 7
                at += 1
                if not self.buffer[at - 1] & 128:
                    if at + size <= len(self.buffer):
                        head, body = self.buffer[0], self.buffer[at:at + size]
                        self.buffer = self.buffer[at + size:]
                        return head, body
                    break
            more = self.socket.recv(1 << 16)
            if not more:
                raise EOFError("closed")
            self.buffer += more

    def send(self, data):
        self.socket.sendall(data)

    def close(self):
        self.socket.close()


# Who may be trusted: publishers that are acknowledged, and the subscriber that has to get it all.

class World:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.broker = None
        # For all, and for the subscriber, who is the last.
        self.is_over, self.is_done = False, False
        self.acknowledged = [set() for _ in range(PUBLISHERS)]
        self.received = [set() for _ in range(PUBLISHERS)]
        self.numbers, self.is_subscribed = [0] * PUBLISHERS, False
        self.counts, self.wrong, self.lock = {}, [], threading.Lock()
        self.pings, self.is_killing = [], False

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def fail(self, words):
        with self.lock:
            self.wrong.append(words)
        print("WRONG:", words, flush=True)

    def meet(self, work, is_over=None):
        """Goes on with `work` in each life of the broker, until it is over."""
        is_over = is_over or (lambda: self.is_over)
        while not is_over():
            broker = self.broker
            try:
                work(broker)
            except (OSError, EOFError):
                # A broker that was killed; one that was not has to say why it closes, and is looked at elsewhere.
                time.sleep(0.05)

    def people(self):
        """All of them; nobody publishes before the subscriber is known."""
        threads = [threading.Thread(target=self.keeper)]
        threads[0].start()
        while not self.is_subscribed and not self.wrong:
            time.sleep(0.01)
        threads += [threading.Thread(target=self.publisher, args=(index,)) for index in range(PUBLISHERS)]
        threads.append(threading.Thread(target=self.sensor))
        for thread in threads[1:]:
            thread.start()
        return threads

    def stop(self, threads):
        self.is_over = self.is_done = True
        for thread in threads:
            thread.join()
        self.is_over = self.is_done = self.is_subscribed = False

    def publisher(self, index):
        def work(broker):
            client = Mqtt(broker, f"publisher-{index}")
            while not self.is_over:
                self.numbers[index] += 1
                number = self.numbers[index]
                client.send(publish(f"soak/{index}", str(number).encode(), number % 65_535 + 1))
                head, _ = client.read()
                if head == 0x40:
                    self.acknowledged[index].add(number)
                time.sleep(0.002)
            client.close()
        self.meet(work)

    def keeper(self):
        def work(broker):
            client = Mqtt(broker, "keeper", is_lasting=True)
            client.send(packet(0x82, b"\0\1" + text("soak/+") + b"\1"))
            client.socket.settimeout(1)
            while True:
                try:
                    head, body = client.read()
                except socket.timeout:
                    if self.is_done:
                        return client.close()
                    client.send(b"\xc0\0")
                    continue
                self.is_subscribed |= head == 0x90
                if head >> 4 == 3:
                    size = struct.unpack("!H", body[:2])[0]
                    topic, identifier = body[2:2 + size].decode(), body[2 + size:4 + size]
                    self.received[int(topic.split("/")[1])].add(int(body[4 + size:]))
                    client.send(b"\x40\2" + identifier)
        self.meet(work, lambda: self.is_done)

    def sensor(self):
        """Pings all along: whoever is let in is served, whatever others do."""
        def work(broker):
            client = Mqtt(broker, "sensor")
            client.socket.settimeout(PATIENCE)
            while not self.is_over:
                began = time.monotonic()
                client.send(b"\xc0\0")
                try:
                    client.read()
                except (OSError, EOFError) as error:
                    if broker is self.broker and not self.is_killing and broker.is_alive():
                        self.fail(f"a client that pings was cut: {error!r}")
                    raise
                self.pings.append(time.monotonic() - began)
                time.sleep(0.05)
        self.meet(work)


# Who may not.

def churn(world, broker):
    """Connections of every kind, ended in every way."""
    chance = world.chance
    held = []
    for _ in range(20):
        kind = chance.randrange(7)
        try:
            if kind == 0:
                client = Mqtt(broker, f"churn-{chance.randrange(1000)}", is_lasting=chance.random() < 0.02)
                client.send(packet(0x82, b"\0\1" + text(f"churn/{chance.randrange(50)}/#") + b"\0"))
                client.send(publish(f"churn/{chance.randrange(50)}/x", b"x" * chance.randrange(2000)))
                if chance.random() < 0.5:
                    client.send(b"\xe0\0")
                held.append(client.socket)
            elif kind == 1:
                one = broker.connect("mqtt")
                one.sendall(hello("half")[:chance.randrange(14)])
                held.append(one)
            elif kind == 2:
                one = broker.connect("ws")
                key = base64.b64encode(bytes(16)).decode()
                one.sendall(f"GET /mqtt HTTP/1.1\r\nHost: {HERE}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
                            .encode()[:chance.choice([30, 1000])])
                held.append(one)
            elif kind == 3:
                one = broker.connect("http")
                one.sendall(b"POST /update HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nINS"[:chance.randrange(80)])
                held.append(one)
            elif kind == 4:
                one = broker.connect("ssap")
                one.sendall(ssap("JOIN")[:chance.choice([40, 5000])])
                held.append(one)
            elif kind == 5:
                one = broker.connect("admin")
                one.sendall(b"GET /heal")
                held.append(one)
            else:
                held.append(watcher(broker, chance.randrange(5)))
            world.count("connections")
        except (OSError, EOFError):
            world.count("attempts while it was down")
    for one in held:
        one.close()


def watcher(broker, number):
    """A subscription to the smart space over a WebSocket."""
    one = broker.connect("http")
    one.sendall(b"GET /subscribe HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
    one.recv(500)
    words = json.dumps({"subscribe": {"sparql": f"SELECT ?o {{ <urn:s{number}> ?p ?o }}"}}).encode()
    one.sendall(bytes([0x81, 0x80 | len(words)]) + bytes(4) + words)
    return one


def bombs(world, broker):
    """Each of them, at each door; the answer is one of those that the protocols have."""
    for words in texts():
        answers = [broker.ask("POST", "/query", words, {"Content-Type": "application/sparql-query"})[0],
                   broker.ask("POST", "/update", words, {"Content-Type": "application/sparql-update"})[0]]
        if len(words) < 20_000:
            answers.append(broker.ask("GET", "/query?query=" + urllib.parse.quote(words))[0])
        judge(world, broker, "SPARQL", answers, (200, 400, 413, 503))
        escaped = words.replace("&", "&amp;").replace("<", "&lt;")
        query = f'<parameter name="type">sparql</parameter><parameter name="query">{escaped}</parameter>'
        try:
            one = broker.connect("ssap", PATIENCE)
            one.sendall(ssap("QUERY", query))
            answer = one.recv(4000)
            one.close()
            judge(world, broker, "SSAP", [200 if b"m3:" in answer else 0], (200,))
        except OSError:
            judge(world, broker, "SSAP", [0], (200,))
    for kind, words in documents():
        answer = broker.ask("PUT", "/store?default", words, {"Content-Type": kind})[0]
        judge(world, broker, kind, [answer], (400, 413, 503))
    origin = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    judge(world, broker, "cross-site", [broker.ask("GET", "/query?query=ASK%7B%7D", None, origin)[0]], (403, 503))


def judge(world, broker, what, answers, allowed):
    world.count("hostile texts", len(answers))
    for answer in answers:
        # Whoever was killed meanwhile cannot answer.
        was_killed = world.is_killing or broker is not world.broker
        if answer not in allowed and not (answer == 0 and was_killed):
            world.fail(f"{what}: {answer}, alive: {broker.is_alive()}")


def load(world, broker):
    """Much data, questions that need much memory, and nothing left of either."""
    sparql = {"Content-Type": "application/sparql-update"}
    for part in range(0, TRIPLES, 10_000):
        lines = "".join(f'<http://x/s{n}> <http://x/p{n % 50}> "value number {n} of something" .\n'
                        for n in range(part, part + 10_000))
        broker.ask("POST", "/update", "INSERT DATA {" + lines + "}", sparql)
    for query in ("SELECT * {?s ?p ?o} ORDER BY ?o", "SELECT (GROUP_CONCAT(?o) AS ?x) {?s ?p ?o}", "SELECT DISTINCT ?s ?o {?s ?p ?o}",
                  "SELECT * {?a <http://x/p1> ?b . ?c <http://x/p2> ?d} LIMIT 500000"):
        broker.ask("POST", "/query", query, {"Content-Type": "application/sparql-query"})
    broker.ask("POST", "/update", "CLEAR ALL", sparql)
    world.count("loads of the space")


def flood(world, broker):
    """As fast as it goes, at QoS 0, to a reader and to one that does not read."""
    reader, deaf, sender = (Mqtt(broker, f"flood-{name}") for name in ("reader", "deaf", "sender"))
    for client in (reader, deaf):
        client.send(packet(0x82, b"\0\1" + text("flood/#") + b"\0"))
    reader.socket.settimeout(0.2)
    piece = publish("flood/x", b"x" * 200) * 500
    for _ in range(FLOOD // 500):
        sender.send(piece)
        try:
            reader.socket.recv(1 << 18)
        except socket.timeout:
            pass
    for client in (reader, deaf, sender):
        client.close()
    world.count("messages of floods", FLOOD)


ATTACKS = (churn, bombs, load, flood)


def attacker(world, attack, pause):
    def work(broker):
        while not world.is_over and broker is world.broker:
            attack(world, broker)
            time.sleep(pause)
    world.meet(work)


def storm(world, broker):
    """All of them at once."""
    threads = [threading.Thread(target=attack, args=(world, broker)) for attack in ATTACKS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def healthy(world, broker):
    """While nobody has killed it, it lives, says so, and no part of it has failed."""
    if not broker.is_alive():
        return world.fail(f"the process ended with {broker.process.returncode}; see {broker.log_path}")
    status, _ = broker.ask("GET", "/healthz", door="admin")
    if status != 200:
        world.fail(f"/healthz: {status}")
    for name in ("space_panics_total", "space_restarts_total"):
        number = broker.metric(name)
        if number is None or number > 0:
            world.fail(f"{name}: {number}")


def report(world, began):
    pings = sorted(world.pings)
    counts = ", ".join(f"{number} {what}" for what, number in sorted(world.counts.items()))
    acknowledged = sum(map(len, world.acknowledged))
    worst = f"p50 {pings[len(pings) // 2] * 1e3:.2f} ms, p99 {pings[len(pings) * 99 // 100] * 1e3:.2f} ms" if pings else "none"
    print(f"{time.monotonic() - began:.0f} s: {acknowledged} acknowledged; {counts}; {len(pings)} pings, {worst}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--binary", required=True)
    options = arguments.parse_args()
    folder, world, began = tempfile.mkdtemp(prefix="tidegate-soak-"), World(options.seed), time.monotonic()
    print(f"soak: {options.minutes} minutes, seed {options.seed}, {options.binary}, in {folder}", flush=True)
    seconds = options.minutes * 60
    world.broker = Broker(options.binary, folder)
    threads = world.people()
    for attack, pause in ((churn, 0.2), (bombs, 1), (load, 5), (flood, 5)):
        threads.append(threading.Thread(target=attacker, args=(world, attack, pause)))
        threads[-1].start()

    # First part: kill -9.
    while time.monotonic() - began < seconds / 2 and not world.wrong:
        time.sleep(world.chance.uniform(2, 15))
        healthy(world, world.broker)
        world.is_killing = True
        world.broker.end("kill")
        world.broker = Broker(options.binary, folder)
        world.is_killing = False
        world.count("kills")
        if world.counts["kills"] % 20 == 1:
            report(world, began)

    # Second part: one life, and its memory. All have stopped but those who are served.
    world.stop(threads)
    world.broker.end("terminate")
    broker = world.broker = Broker(options.binary, folder)
    people = world.people()
    first = broker.kilobytes("VmRSS")
    # Each thread has caches of its own, and a stack that it has used: memory is compared from when all have met all of it.
    for _ in range(WARMING):
        storm(world, broker)
    time.sleep(QUIET)
    before, anonymous = broker.kilobytes("VmRSS"), broker.kilobytes("RssAnon")
    rounds = 0
    while time.monotonic() - began < seconds - QUIET and not world.wrong:
        storm(world, broker)
        healthy(world, broker)
        rounds += 1
        if rounds % 20 == 1:
            report(world, began)
    time.sleep(QUIET)
    after, left = broker.kilobytes("VmRSS"), broker.kilobytes("RssAnon")
    peak = broker.kilobytes("VmHWM")
    print(f"memory: {first} KiB at the start, {before} KiB resident ({anonymous} of it anonymous), {peak} at most in {rounds} storms, {after} ({left}) after", flush=True)
    if after > before * 1.1:
        world.fail(f"memory is not given back: {after} KiB, {before} before")
    # What was acknowledged has to be there, sooner or later.
    world.is_over = True
    for thread in people[1:]:
        thread.join()
    until = time.monotonic() + PATIENCE
    missing = lambda: [len(sent - got) for sent, got in zip(world.acknowledged, world.received)]
    while any(missing()) and time.monotonic() < until:
        time.sleep(0.2)
    if any(missing()):
        world.fail(f"acknowledged and lost, by publisher: {missing()}")
    world.stop(people)
    healthy(world, broker)
    broker.end("terminate")
    if broker.process.returncode != 0:
        world.fail(f"it ended with {broker.process.returncode}")
    with open(broker.log_path, errors="replace") as log:
        panics = [line for line in log if "panic" in line]
    if panics:
        world.fail(f"{len(panics)} panics in {broker.log_path}: {panics[0]}")
    report(world, began)
    print(f"soak: {'FAILED: ' + '; '.join(world.wrong[:5]) if world.wrong else 'all of it held'}", flush=True)
    return 1 if world.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
