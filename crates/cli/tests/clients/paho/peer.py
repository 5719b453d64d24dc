"""A client of paho-mqtt whose every step waits for what it needs, and for nothing else."""

import os
import queue
import socket
import ssl

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

PATIENCE = 20
HOST = os.environ["BROKER_HOST"]
DOORS = {
    "mqtt": ("tcp", False),
    "mqtts": ("tcp", True),
    "ws": ("websockets", False),
    "wss": ("websockets", True),
}


class Peer:
    def __init__(self, version, name, door="mqtt", clean=True, will=None, properties=None, will_properties=None):
        transport, encrypted = DOORS[door]
        self.version = version
        self.arrived = queue.Queue()
        self.events = queue.Queue()
        # Before MQTT 5 the constructor says whether the session is clean; since then it is said when connecting.
        session = {} if version == mqtt.MQTTv5 else {"clean_session": clean}
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            protocol=version,
            transport=transport,
            reconnect_on_failure=False,
            **session,
        )
        if encrypted:
            self.client.tls_set(ca_certs=os.environ["BROKER_CA"], cert_reqs=ssl.CERT_REQUIRED)
        if will:
            topic, payload, qos, retain = will
            self.client.will_set(topic, payload, qos, retain, properties=will_properties)
        self.client.on_connect = lambda c, u, flags, code, props: self.events.put(("connect", code, flags, props))
        self.client.on_disconnect = lambda c, u, flags, code, props: self.events.put(("disconnect", code, props))
        self.client.on_subscribe = lambda c, u, mid, codes, props: self.events.put(("subscribe", mid, codes))
        self.client.on_unsubscribe = lambda c, u, mid, codes, props: self.events.put(("unsubscribe", mid, codes))
        self.client.on_publish = lambda c, u, mid, code, props: self.events.put(("publish", mid, code))
        self.client.on_message = lambda c, u, message: self.arrived.put(message)
        options = {"clean_start": clean, "properties": properties} if version == mqtt.MQTTv5 else {}
        self.client.connect(HOST, int(os.environ["BROKER_" + door.upper()]), **options)
        self.client.loop_start()
        _, self.code, flags, self.hello = self.event("connect")
        self.session_present = flags.session_present

    def event(self, kind):
        found = self.events.get(timeout=PATIENCE)
        assert found[0] == kind, f"{found} instead of {kind}"
        return found

    def subscribe(self, filter, qos=0, **more):
        """Returns the numeric reason code."""
        result, sent = self.client.subscribe(filter, **more) if more else self.client.subscribe(filter, qos)
        assert result == mqtt.MQTT_ERR_SUCCESS, result
        _, mid, codes = self.event("subscribe")
        assert mid == sent and len(codes) == 1, (mid, sent, codes)
        return codes[0].value

    def unsubscribe(self, filter):
        _, sent = self.client.unsubscribe(filter)
        _, mid, codes = self.event("unsubscribe")
        assert mid == sent
        return [code.value for code in codes]

    def publish(self, *messages, properties=None):
        """Publishes (topic, payload, qos, retain) each and waits until all are done; returns the reason codes."""
        for topic, payload, qos, retain in messages:
            self.client.publish(topic, payload, qos, retain, properties=properties)
        return [self.event("publish")[2].value for _ in messages]

    def message(self):
        return self.arrived.get(timeout=PATIENCE)

    def receive(self):
        """The next message as (topic, payload, qos, retain)."""
        message = self.message()
        return (message.topic, message.payload, message.qos, message.retain)

    def disconnect(self, **more):
        self.client.disconnect(**more)
        self.event("disconnect")
        self.client.loop_stop()

    def cut(self):
        """Breaks the connection without a word."""
        with socket.socket(fileno=os.dup(self.client.socket().fileno())) as plain:
            plain.shutdown(socket.SHUT_RDWR)
        self.event("disconnect")
        self.client.loop_stop()
