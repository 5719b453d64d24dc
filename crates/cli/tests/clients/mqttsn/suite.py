"""Scenarios with mqttsn. Prints a line per scenario; ends with code 1 if one fails."""

import itertools
import os
import queue
import sys
import traceback

from mqttsn.client import Callback, Client, publish
from mqttsn.lib.disconnects import Disconnects
from mqttsn.lib.names import DISCONNECT, PINGRESP, PUBACK, UNSUBACK
from mqttsn.lib.ping import Pingreqs
from mqttsn.lib.unsubscribes import Unsubscribes

PORT = int(os.environ["BROKER_SN"])
PATIENCE = 20
NAMES = (b"py%d" % number for number in itertools.count())


class Ear(Callback):
    """What came, and what was confirmed."""

    def __init__(self):
        super().__init__()
        self.messages = queue.Queue()
        self.confirmed = queue.Queue()

    def message_arrived(self, topic_name, payload, qos, retained, msgid):
        self.messages.put((bytes(payload), qos, bool(retained)))
        return True

    def published(self, msgid):
        self.confirmed.put(msgid)


def client():
    one = Client(next(NAMES), host="127.0.0.1", port=PORT)
    one.register_callback(Ear())
    one.connect()
    return one


def receiver(one):
    return one._Client__receiver


def answer(one, kind, packet):
    """What comes of this kind after this was sent."""
    receiver(one).lookfor(kind)
    one.sock.send(packet)
    return one.waitfor(kind)


def heard(one):
    return one.callback.messages.get(timeout=PATIENCE)


def expect(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


def messages_of_every_quality_come_by_a_short_name():
    subscriber, publisher = client(), client()
    for qos in (0, 1, 2):
        expect(subscriber.subscribe("q%d" % qos, qos)[0], 0)
        number = publisher.publish("q%d" % qos, "quality %d" % qos, qos)
        expect(heard(subscriber), (b"quality %d" % qos, qos, False))
        if qos:
            expect(publisher.callback.confirmed.get(timeout=PATIENCE), number)


def a_topic_that_was_named_has_an_identifier():
    subscriber, publisher = client(), client()
    code, _ = subscriber.subscribe("py/named", 1)
    expect(code, 0)
    topic = publisher.register(b"py/named")
    for number in range(20):
        publisher.publish(topic, "%d" % number, 1)
        expect(heard(subscriber), (b"%d" % number, 1, False))
        publisher.callback.confirmed.get(timeout=PATIENCE)


def an_unknown_identifier_is_refused():
    one = client()
    receiver(one).lookfor(PUBACK)
    number = one.publish(1, "nowhere", 1)
    refusal = one.waitfor(PUBACK, number)
    expect((refusal.return_code, refusal.topic_id), (2, 1))


def who_has_no_connection_publishes():
    subscriber = client()
    subscriber.subscribe("un", 0)
    publish("un", "unconnected", port=PORT, host="127.0.0.1")
    expect(heard(subscriber), (b"unconnected", 0, False))


def what_is_retained_is_there_for_who_comes_later():
    publisher = client()
    publisher.publish("re", "state", 1, retained=True)
    publisher.callback.confirmed.get(timeout=PATIENCE)
    late = client()
    late.subscribe("re", 1)
    expect(heard(late), (b"state", 1, True))


def after_an_unsubscribe_nothing_comes():
    subscriber, publisher = client(), client()
    subscriber.subscribe("us", 1)
    subscriber.subscribe("end", 1)
    leave = Unsubscribes()
    leave.msg_id, leave.topic_name = 99, "us"
    expect(answer(subscriber, UNSUBACK, leave.pack()).msg_id, 99)
    end = publisher.register(b"end")
    publisher.publish("us", "unheard", 1)
    publisher.callback.confirmed.get(timeout=PATIENCE)
    publisher.publish(end, "end", 1)
    expect(heard(subscriber)[0], b"end")


def who_sleeps_has_its_messages_when_it_wakes():
    sleeper, publisher = client(), client()
    sleeper.subscribe("sl", 1)
    sleep = Disconnects()
    sleep.duration = 600
    assert answer(sleeper, DISCONNECT, sleep.pack()) is not None
    for number in range(10):
        publisher.publish("sl", "%d" % number, 1)
        publisher.callback.confirmed.get(timeout=PATIENCE)
    assert sleeper.callback.messages.empty()
    # Its own way to name a client in a PINGREQ does not work.
    wake = Pingreqs().mh.pack(len(sleeper.client_id)) + sleeper.client_id
    assert answer(sleeper, PINGRESP, wake) is not None
    expect([heard(sleeper)[0] for _ in range(10)], [b"%d" % number for number in range(10)])


def main():
    scenarios = [
        messages_of_every_quality_come_by_a_short_name,
        a_topic_that_was_named_has_an_identifier,
        an_unknown_identifier_is_refused,
        who_has_no_connection_publishes,
        what_is_retained_is_there_for_who_comes_later,
        after_an_unsubscribe_nothing_comes,
        who_sleeps_has_its_messages_when_it_wakes,
    ]
    failed = False
    for scenario in scenarios:
        try:
            scenario()
            print("ok", scenario.__name__, flush=True)
        except Exception:
            failed = True
            print("failed", scenario.__name__)
            traceback.print_exc()
    # Its threads wait for messages for ever.
    sys.stdout.flush()
    os._exit(1 if failed else 0)


main()
