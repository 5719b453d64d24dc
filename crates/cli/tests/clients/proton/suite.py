"""Scenarios with qpid-proton. Prints a line per scenario; ends with code 1 if one fails."""

import os
import socket
import struct
import sys
import traceback

from proton import Message, SSLDomain
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached, SendException

HOST = "127.0.0.1"
URL = f"{HOST}:{os.environ['BROKER_AMQP']}"
PATIENCE = 20


def connect(**more):
    return BlockingConnection(URL, timeout=PATIENCE, **more)


def expect(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


def take(receiver):
    message = receiver.receive(timeout=PATIENCE)
    receiver.accept()
    return message


def a_message_comes_back_with_what_it_carries():
    connection = connect()
    receiver = connection.create_receiver("proton/+/t", credit=10)
    sender = connection.create_sender("proton/7/t")
    for body in ["text", b"\x00bytes\xff", "long " * 50_000]:
        sender.send(Message(body=body, correlation_id="c-1", reply_to="proton/replies", properties={"n": 3, "s": "x"}))
        message = take(receiver)
        expect(message.body if isinstance(body, str) else bytes(message.body), body)
        expect((message.address, message.correlation_id, message.reply_to), ("proton/7/t", "c-1", "proton/replies"))
        expect(message.properties, {"n": "3", "s": "x"})
    connection.close()


def what_lives_shortly_says_how_long_it_has_left():
    connection = connect()
    receiver = connection.create_receiver("proton/ttl", credit=1)
    connection.create_sender("proton/ttl").send(Message(body="x", ttl=60, content_type="text/plain"))
    message = take(receiver)
    assert 0 < message.ttl <= 60, message.ttl
    expect((bytes(message.body), message.content_type), (b"x", "text/plain"))
    connection.close()


def a_relay_publishes_where_each_message_says():
    connection = connect()
    receiver = connection.create_receiver("proton/relay/#", credit=10)
    relay = connection.create_sender(None)
    for place in "ab":
        relay.send(Message(address=f"proton/relay/{place}", body=place))
        message = take(receiver)
        expect((message.address, message.body), (f"proton/relay/{place}", place))
    try:
        relay.send(Message(body="nowhere"))
        raise AssertionError("taken without an address")
    except SendException as refused:
        assert "REJECTED" in str(refused) or "37" in str(refused), refused
    connection.close()


def what_is_retained_waits_for_who_comes_later():
    connection = connect()
    annotated = Message(body="kept", annotations={"x-opt-retain-message": True})
    connection.create_sender("proton/state").send(annotated)
    message = take(connection.create_receiver("proton/state", credit=1))
    expect((message.body, message.annotations["x-opt-retain-message"]), ("kept", True))
    connection.close()


def settled_messages_come_and_go_without_an_answer():
    connection = connect()
    receiver = connection.create_receiver("proton/settled", credit=100, options=AtMostOnce())
    sender = connection.create_sender("proton/settled", options=AtMostOnce())
    for number in range(50):
        sender.send(Message(body=str(number)))
    for number in range(50):
        expect(receiver.receive(timeout=PATIENCE).body, str(number))
    connection.close()


def credit_is_what_bounds_a_receiver():
    connection, other = connect(), connect()
    receiver = connection.create_receiver("proton/credit")
    sender = other.create_sender("proton/credit")
    for number in range(300):
        sender.send(Message(body=str(number)))
    for number in range(300):
        expect(take(receiver).body, str(number))
    connection.close()
    other.close()


def filters_that_are_none_are_refused_and_the_connection_goes_on():
    connection = connect()
    try:
        connection.create_receiver("proton/#/x")
        raise AssertionError("attached to no filter")
    except LinkDetached as refused:
        assert "amqp:invalid-field" in str(refused), refused
    connection.create_sender("proton/fine").send(Message(body="x"))
    connection.close()


def mqtt_publish(topic, payload):
    """A message of MQTT 3.1.1 at QoS 0, by hand."""
    with socket.create_connection((HOST, int(os.environ["BROKER_MQTT"])), timeout=PATIENCE) as client:
        client.sendall(b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03raw")
        assert client.recv(4) == b"\x20\x02\x00\x00"
        body = struct.pack("!H", len(topic)) + topic.encode() + payload
        client.sendall(bytes([0x30, len(body)]) + body + b"\xe0\x00")
        client.recv(1)


def over_tls_a_message_of_mqtt_arrives():
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(os.environ["BROKER_CA"])
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    url = f"amqps://{os.environ['BROKER_HOST']}:{os.environ['BROKER_AMQPS']}"
    connection = BlockingConnection(url, timeout=PATIENCE, ssl_domain=domain)
    receiver = connection.create_receiver("proton/mqtt", credit=1)
    mqtt_publish("proton/mqtt", b"from MQTT")
    # What was published at QoS 0 comes settled: nobody waits for an answer.
    message = receiver.receive(timeout=PATIENCE)
    expect(bytes(message.body), b"from MQTT")
    connection.close()


SCENARIOS = [
    a_message_comes_back_with_what_it_carries,
    what_lives_shortly_says_how_long_it_has_left,
    a_relay_publishes_where_each_message_says,
    what_is_retained_waits_for_who_comes_later,
    settled_messages_come_and_go_without_an_answer,
    credit_is_what_bounds_a_receiver,
    filters_that_are_none_are_refused_and_the_connection_goes_on,
    over_tls_a_message_of_mqtt_arrives,
]

failed = False
for scenario in SCENARIOS:
    try:
        scenario()
        print("ok", scenario.__name__, flush=True)
    except Exception:
        failed = True
        print("failed", scenario.__name__, flush=True)
        traceback.print_exc()
sys.exit(1 if failed else 0)
