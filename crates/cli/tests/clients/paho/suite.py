"""Scenarios with paho-mqtt. Prints a line per scenario; ends with code 1 if one fails."""

import sys
import traceback

import paho.mqtt.client as mqtt

import version5
from peer import Peer

ALL = {"3.1": mqtt.MQTTv31, "3.1.1": mqtt.MQTTv311, "5": mqtt.MQTTv5}


def every_quality_of_service_is_the_lower_of_two(version, door):
    publisher = Peer(version, "publisher", door)
    for subscribed in range(3):
        subscriber = Peer(version, "subscriber", door)
        assert subscriber.subscribe("a/+", subscribed) == subscribed
        for published in range(3):
            publisher.publish(("a/b", b"%d" % published, published, False))
            expect(subscriber.receive(), ("a/b", b"%d" % published, min(subscribed, published), False))
        subscriber.disconnect()
    publisher.disconnect()


def a_thousand_messages_arrive_in_order(version, door):
    publisher = Peer(version, "publisher", door)
    subscriber = Peer(version, "subscriber", door)
    subscriber.subscribe("n/#", 2)
    for qos in range(3):
        messages = [("n/x", b"%d" % number, qos, False) for number in range(1000)]
        publisher.publish(*messages)
        publisher.publish(("n/end", b"", qos, False))
        expect([subscriber.receive() for _ in messages], messages)
        expect(subscriber.receive(), ("n/end", b"", qos, False))
    subscriber.disconnect()
    publisher.disconnect()


def large_payloads_arrive_whole(version, door):
    publisher = Peer(version, "publisher", door)
    subscriber = Peer(version, "subscriber", door)
    subscriber.subscribe("large", 2)
    payload = bytes(number * 7 // 3 % 256 for number in range(200 * 1024))
    for qos in range(3):
        publisher.publish(("large", payload, qos, False))
        assert subscriber.receive() == ("large", payload, qos, False), "the payload changed on its way"
    subscriber.disconnect()
    publisher.disconnect()


def retained_messages_wait_and_can_be_deleted(version, door):
    publisher = Peer(version, "publisher", door)
    live = Peer(version, "live", door)
    live.subscribe("r/#", 1)
    publisher.publish(("r/a", b"old", 1, True), ("r/a", b"new", 1, True))
    expect([live.receive(), live.receive()], [("r/a", b"old", 1, False), ("r/a", b"new", 1, False)])
    late = Peer(version, "late", door)
    late.subscribe("r/+", 2)
    expect(late.receive(), ("r/a", b"new", 1, True))
    late.disconnect()
    publisher.publish(("r/a", b"", 1, True), ("r/end", b"", 1, False))
    expect([live.receive(), live.receive()], [("r/a", b"", 1, False), ("r/end", b"", 1, False)])
    later = Peer(version, "later", door)
    later.subscribe("r/#", 1)
    publisher.publish(("r/end", b"", 1, False))
    expect(later.receive(), ("r/end", b"", 1, False))
    for peer in (later, live, publisher):
        peer.disconnect()


def wills(version, door):
    watcher = Peer(version, "watcher", door)
    watcher.subscribe("will/#", 2)
    Peer(version, "polite", door, will=("will/polite", "gone", 1, False)).disconnect()
    for qos in range(3):
        Peer(version, "mortal", door, will=("will/x", "gone %d" % qos, qos, False)).cut()
        expect(watcher.receive(), ("will/x", b"gone %d" % qos, qos, False))
    watcher.disconnect()


def a_session_goes_on_with_what_it_missed(version, door):
    publisher = Peer(version, "publisher", door)
    hello = {"clean": False}
    if version == mqtt.MQTTv5:
        hello["properties"] = version5.connect(SessionExpiryInterval=600)
    keeper = Peer(version, "keeper", door, **hello)
    assert not keeper.session_present
    keeper.subscribe("one", 1)
    keeper.subscribe("two", 2)
    keeper.disconnect()
    ones = [("one", b"%d" % number, 1, False) for number in range(100)]
    twos = [("two", b"%d" % number, 2, False) for number in range(100)]
    publisher.publish(*(message for pair in zip(ones, twos) for message in pair))
    keeper = Peer(version, "keeper", door, **hello)
    # MQTT 3.1 has no words for it.
    assert keeper.session_present or version == mqtt.MQTTv31
    # paho hands out QoS 2 when it is released, later than QoS 1.
    missed = [keeper.receive() for _ in range(200)]
    expect([message for message in missed if message[2] == 1], ones)
    expect([message for message in missed if message[2] == 2], twos)
    publisher.publish(("one", b"end", 1, False))
    expect(keeper.receive(), ("one", b"end", 1, False))
    keeper.disconnect()
    keeper = Peer(version, "keeper", door)
    assert not keeper.session_present
    keeper.disconnect()
    publisher.disconnect()


def a_shared_subscription_divides(version, door):
    publisher = Peer(version, "publisher", door)
    members = [Peer(version, "member-%d" % number, door) for number in range(3)]
    for member in members:
        member.subscribe("$share/group/job/#", 1)
        member.subscribe("end", 1)
    jobs = [("job/x", b"%02d" % number, 1, False) for number in range(60)]
    publisher.publish(*jobs, ("end", b"", 1, False))
    done = []
    for member in members:
        mine = list(iter(member.receive, ("end", b"", 1, False)))
        assert mine and mine == sorted(mine), mine
        done += mine
        member.disconnect()
    expect(sorted(done), jobs)
    publisher.disconnect()


def an_end_of_a_subscription_is_an_end(version, door):
    client = Peer(version, "client", door)
    client.subscribe("a", 1)
    client.subscribe("b", 1)
    codes = client.unsubscribe("a")
    assert codes == ([0] if version == mqtt.MQTTv5 else []), codes
    client.publish(("a", b"unheard", 1, False), ("b", b"heard", 1, False))
    expect(client.receive(), ("b", b"heard", 1, False))
    client.disconnect()


def expect(found, expected):
    assert found == expected, f"{found!r:.2000} instead of {expected!r:.2000}"


COMMON = [
    every_quality_of_service_is_the_lower_of_two,
    large_payloads_arrive_whole,
    retained_messages_wait_and_can_be_deleted,
    wills,
    a_session_goes_on_with_what_it_missed,
    a_shared_subscription_divides,
    an_end_of_a_subscription_is_an_end,
]


def plan():
    """All scenarios: everything over TCP, the rest of the doors with the two versions in use."""
    for version in ALL:
        for scenario in [*COMMON, a_thousand_messages_arrive_in_order]:
            yield scenario, version, "mqtt"
    for door in ("mqtts", "ws", "wss"):
        for version in ("3.1.1", "5"):
            for scenario in COMMON:
                yield scenario, version, door


def run(name, scenario, *arguments):
    try:
        scenario(*arguments)
    except Exception:
        print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        return False
    print(f"ok {name}", flush=True)
    return True


results = [run(f"{scenario.__name__} {name} {door}", scenario, ALL[name], door) for scenario, name, door in plan()]
results += [run(scenario.__name__, scenario) for scenario in version5.SCENARIOS]
sys.exit(0 if all(results) else 1)
