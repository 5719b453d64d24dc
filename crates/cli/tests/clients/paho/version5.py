"""Scenarios of MQTT 5 alone."""

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from peer import Peer


def made(kind, **values):
    properties = Properties(kind)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def connect(**values):
    return made(PacketTypes.CONNECT, **values)


def publish(**values):
    return made(PacketTypes.PUBLISH, **values)


def peer(name, **more):
    return Peer(mqtt.MQTTv5, name, **more)


def properties_travel_unchanged():
    client = peer("client")
    client.subscribe("p", 1)
    pairs = [("b", "1"), ("a", "2"), ("b", "3")]
    sent = publish(
        UserProperty=pairs,
        ContentType="text/plain",
        ResponseTopic="answers",
        CorrelationData=b"\x00\xff",
        PayloadFormatIndicator=1,
    )
    assert client.publish(("p", "21 °C", 1, False), properties=sent) == [0]
    message = client.message()
    assert message.payload.decode() == "21 °C"
    found = message.properties
    assert found.UserProperty == pairs, found
    assert (found.ContentType, found.ResponseTopic) == ("text/plain", "answers"), found
    assert (found.CorrelationData, found.PayloadFormatIndicator) == (b"\x00\xff", 1), found
    client.disconnect()


def reason_codes_are_exact():
    client = peer("client")
    # No matching subscribers; the same of a QoS 2 message is in its PUBREC, and paho shows the PUBCOMP.
    assert client.publish(("nobody", b"", 1, False)) == [16]
    assert client.publish(("nobody", b"", 2, False)) == [0]
    # Nobody writes to $SYS.
    assert client.publish(("$SYS/x", b"", 1, False)) == [0x87]
    assert client.unsubscribe("never") == [17]
    client.disconnect()


def identifiers_of_subscriptions_arrive():
    client = peer("client")
    for filter, number in (("i/#", 7), ("i/+", 268435455)):
        properties = made(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=number)
        assert client.subscribe(filter, options=SubscribeOptions(qos=1), properties=properties) == 1
    client.publish(("i/a", b"", 1, False), ("i/a/b", b"", 1, False))
    assert sorted(client.message().properties.SubscriptionIdentifier) == [7, 268435455]
    assert client.message().properties.SubscriptionIdentifier == [7]
    client.disconnect()


def options_of_subscriptions_hold():
    client, other = peer("client"), peer("other")
    other.publish(("o/kept", b"", 1, True))
    options = SubscribeOptions(
        qos=1, noLocal=True, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND
    )
    client.subscribe("o/#", options=options)
    client.publish(("o/own", b"", 1, False))
    other.publish(("o/other", b"x", 1, True))
    assert client.receive() == ("o/other", b"x", 1, True)
    other.publish(("o/kept", b"", 1, True), ("o/other", b"", 1, True))
    client.disconnect()
    other.disconnect()


def topic_aliases_work_both_ways():
    publisher = peer("publisher")
    assert publisher.hello.TopicAliasMaximum > 1
    subscriber = peer("subscriber", properties=connect(TopicAliasMaximum=10))
    subscriber.subscribe("alias/#", 1)
    for topic in ("alias/a", "", ""):
        publisher.publish((topic, b"x", 1, False), properties=publish(TopicAlias=1))
    topics, aliases = [], set()
    for _ in range(3):
        message = subscriber.message()
        topics.append(message.topic)
        aliases.add(getattr(message.properties, "TopicAlias", None))
    # paho does not look the alias up; it shows what came.
    assert topics[0] == "alias/a" and set(topics[1:]) <= {"", "alias/a"}, topics
    assert len(aliases) == 1 or None in aliases, aliases
    publisher.disconnect()
    subscriber.disconnect()


def a_request_is_answered():
    server, client = peer("server"), peer("client")
    server.subscribe("double", 1)
    client.subscribe("answers/client", 1)
    for number in range(10):
        data = b"%d" % number
        sent = publish(ResponseTopic="answers/client", CorrelationData=data)
        client.publish(("double", data, 1, False), properties=sent)
        request = server.message()
        answer = publish(CorrelationData=request.properties.CorrelationData)
        server.publish((request.properties.ResponseTopic, b"%d" % (2 * int(request.payload)), 1, False), properties=answer)
        message = client.message()
        assert (message.payload, message.properties.CorrelationData) == (b"%d" % (2 * number), data)
    server.disconnect()
    client.disconnect()


def a_small_receive_maximum_is_kept():
    publisher = peer("publisher")
    subscriber = peer("subscriber", properties=connect(ReceiveMaximum=1))
    subscriber.subscribe("slow", 2)
    messages = [("slow", b"%d" % number, 1 + number % 2, False) for number in range(50)]
    publisher.publish(*messages)
    assert [subscriber.receive() for _ in messages] == messages
    publisher.disconnect()
    subscriber.disconnect()


def too_long_for_a_client_is_not_sent():
    publisher = peer("publisher")
    subscriber = peer("subscriber", properties=connect(MaximumPacketSize=100))
    subscriber.subscribe("size", 1)
    publisher.publish(("size", bytes(200), 1, False), ("size", b"short", 1, False))
    assert subscriber.receive() == ("size", b"short", 1, False)
    publisher.disconnect()
    subscriber.disconnect()


def a_message_says_how_long_it_lives():
    client = peer("client")
    client.subscribe("e", 1)
    client.publish(("e", b"", 1, False), properties=publish(MessageExpiryInterval=100))
    assert client.message().properties.MessageExpiryInterval in (99, 100)
    client.disconnect()


def a_takeover_is_told():
    first = peer("twin")
    second = peer("twin")
    _, code, properties = first.event("disconnect")
    assert code.value == 0x8E, code
    assert properties.ReasonString, properties
    first.client.loop_stop()
    second.disconnect()


def a_will_waits_for_its_delay_or_the_end_of_the_session():
    watcher = peer("watcher")
    watcher.subscribe("will", 1)
    delay = made(PacketTypes.WILLMESSAGE, WillDelayInterval=600, ContentType="text/plain")
    will = {"will": ("will", "gone", 1, False), "will_properties": delay}
    expiry = connect(SessionExpiryInterval=600)
    peer("mortal", clean=False, properties=expiry, **will).cut()
    # It comes back in time, and a new session publishes the old one's will when it replaces it.
    again = peer("mortal", clean=False, properties=expiry, **will)
    assert again.session_present
    again.cut()
    peer("mortal").disconnect()
    message = watcher.message()
    assert (message.payload, message.properties.ContentType) == (b"gone", "text/plain")
    # A goodbye "with will".
    parting = peer("parting", will=("will", "parting", 1, False))
    parting.disconnect(reasoncode=mqtt.ReasonCode(PacketTypes.DISCONNECT, identifier=4))
    assert watcher.receive() == ("will", b"parting", 1, False)
    watcher.disconnect()


SCENARIOS = [
    properties_travel_unchanged,
    reason_codes_are_exact,
    identifiers_of_subscriptions_arrive,
    options_of_subscriptions_hold,
    topic_aliases_work_both_ways,
    a_request_is_answered,
    a_small_receive_maximum_is_kept,
    too_long_for_a_client_is_not_sent,
    a_message_says_how_long_it_lives,
    a_takeover_is_told,
    a_will_waits_for_its_delay_or_the_end_of_the_session,
]
