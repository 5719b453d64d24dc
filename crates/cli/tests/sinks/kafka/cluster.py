"""A Kafka cluster for a test: the mock of librdkafka, inside of Python's confluent-kafka, which speaks the protocol on real sockets.

Prints the addresses of its brokers, then answers each line of its input with one line:
  create TOPIC PARTITIONS   down   up   stall MS   refuse CODE   read TOPIC PARTITIONS
`stall` answers the next PRODUCE of each broker so late, after the records are kept; `refuse` answers it with an error of the protocol.
"""

import ctypes
import glob
import json
import os
import sys

import confluent_kafka

BROKERS = 2
PRODUCE = 0
PRODUCER = 0


def library():
    folder = os.path.join(os.path.dirname(confluent_kafka.__file__), "..", "confluent_kafka.libs")
    loaded = ctypes.CDLL(sorted(glob.glob(os.path.join(folder, "librdkafka-*.so*")))[0])
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(loaded, name).restype = ctypes.c_void_p
    loaded.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return loaded


class Cluster:
    def __init__(self):
        self.kafka = library()
        words = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self.kafka.rd_kafka_conf_new())
        handle = ctypes.c_void_p(self.kafka.rd_kafka_new(PRODUCER, conf, words, len(words)))
        self.cluster = ctypes.c_void_p(self.kafka.rd_kafka_mock_cluster_new(handle, BROKERS))
        self.addresses = self.kafka.rd_kafka_mock_cluster_bootstraps(self.cluster).decode()

    def create(self, topic, partitions):
        self.kafka.rd_kafka_mock_topic_create(self.cluster, topic.encode(), int(partitions), 1)

    def each(self, verb, *arguments):
        for broker in range(1, BROKERS + 1):
            getattr(self.kafka, verb)(self.cluster, broker, *arguments)

    def down(self):
        self.each("rd_kafka_mock_broker_set_down")

    def up(self):
        self.each("rd_kafka_mock_broker_set_up")

    def answer_next(self, code, rtt_ms):
        one, key = ctypes.c_size_t(1), ctypes.c_int16(PRODUCE)
        self.each("rd_kafka_mock_broker_push_request_error_rtts", key, one, ctypes.c_int(code), ctypes.c_int(rtt_ms))

    def stall(self, rtt_ms):
        self.answer_next(0, int(rtt_ms))

    def refuse(self, code):
        self.answer_next(int(code), 0)

    def read(self, topic, partitions):
        """All records, each as partition, key and value."""
        settings = {"bootstrap.servers": self.addresses, "group.id": "test", "enable.partition.eof": True}
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(topic, place, 0) for place in range(int(partitions))])
        records, ended = [], set()
        while len(ended) < int(partitions):
            message = consumer.poll(30)
            if message is None:
                raise SystemExit("no answer to a reader")
            if message.error() is None:
                records.append([message.partition(), message.key().decode(), message.value().decode()])
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        consumer.close()
        return records


def main():
    cluster = Cluster()
    print(cluster.addresses, flush=True)
    for line in sys.stdin:
        verb, *arguments = line.split()
        print(json.dumps(getattr(cluster, verb)(*arguments)), flush=True)


main()
