#!/usr/bin/env python3
"""Records what software and a broker say to each other, as the tests beside this say it again.

record.py FILE LISTEN_PORT BROKER_PORT: connections to the first port are passed on to the second, on this machine; SIGINT or
SIGTERM ends it and writes the file. PINGREQ and PINGRESP are left out.
"""

import asyncio
import signal
import sys

NAMES = (
    "? CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK PINGREQ PINGRESP "
    "DISCONNECT AUTH"
).split()


def header_of(data):
    """Bytes of the fixed header and of the rest; none if they are not there yet."""
    size = 0
    for place in range(1, min(len(data), 5)):
        size |= (data[place] & 127) << (7 * (place - 1))
        if not data[place] & 128:
            return place + 1, size
    return None


def words(packet):
    name = NAMES[packet[0] >> 4]
    if name != "PUBLISH":
        return name
    head, _ = header_of(packet)
    size = int.from_bytes(packet[head : head + 2], "big")
    return f"{name} {packet[head + 2 : head + 2 + size].decode(errors='replace')}"


class Recorder:
    def __init__(self, broker_port):
        self.broker_port, self.lines, self.count = broker_port, [], 0

    async def serve(self, reader, writer):
        self.count += 1
        who = f"c{self.count}"
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        await asyncio.gather(self.pump(reader, far_writer, who, ">"), self.pump(far_reader, writer, who, "<"))

    async def pump(self, reader, writer, who, sign):
        data, last = b"", ""
        try:
            while received := await reader.read(1 << 16):
                data += received
                while (header := header_of(data)) and len(data) >= sum(header):
                    packet, data = data[: sum(header)], data[sum(header) :]
                    last = words(packet)
                    if not last.startswith("PING"):
                        self.lines.append(f"{who} {sign} {packet.hex()}  {last}")
                writer.write(received)
                await writer.drain()
        except ConnectionError:
            pass
        if sign == ">" and last != "DISCONNECT":
            self.lines.append(f"{who} ! cut")
        writer.close()


async def main():
    name, listen_port, broker_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    recorder, stopped = Recorder(broker_port), asyncio.Event()
    await asyncio.start_server(recorder.serve, "127.0.0.1", listen_port)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    with open(name, "w", encoding="ascii", errors="backslashreplace") as file:
        file.write("".join(f"{line}\n" for line in recorder.lines))


asyncio.run(main())
