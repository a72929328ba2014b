"""The compared systems: a server with settings and a client with the best batching available.

The durability text of a system states which failures a confirmed push survives.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Final

from . import fetch
from .beanstalkd_server import BeanstalkdServer
from .kafka_server import KafkaCluster, KafkaServer
from .nats_server import NatsCluster, NatsServer
from .rabbitmq_server import RabbitCluster, RabbitServer
from .redis_server import RedisAlways, RedisEverySecond, RedisNeverSyncs
from .server import Server
from .session import Session
from .weft_server import WeftCluster, WeftDisk, WeftOs

OS_ONLY: Final = "in the page cache"


@dataclass(frozen=True)
class System:
    name: str
    server: type[Server]
    #: Module and class; the module is imported only if the client library is installed.
    session: tuple[str, str]
    #: Distributions of the client library, for the import check and the version.
    packages: tuple[str, ...]
    #: True if consumers acknowledge, so that a crash of a consumer loses no message.
    acks: bool
    durability: str
    #: The client setting in use.
    batching: str
    #: Provides the server's program, or raises `Missing`.
    fetch: Callable[[bool], None]
    #: True if the system runs only on request by name or by a workload.
    special: bool = False
    #: Module and class of the client for fan-out; None if the benchmark has none.
    fan_out: tuple[str, str] | None = None

    def open(self, address: dict[str, object], *, fan_out: bool = False) -> Session:
        found = self.fan_out if fan_out else self.session
        assert found is not None, f"{self.name} has no fan-out"
        module, name = found
        made = getattr(importlib.import_module(f"bench.peers.{module}"), name)(address)
        assert isinstance(made, Session)
        return made

    def client_version(self) -> str:
        return ", ".join(f"{name} {version(name)}" for name in self.packages)


def _redis(may: bool) -> None:
    fetch.program("redis-server", "redis-server", fetch=may)


def _rabbit(may: bool) -> None:
    fetch.program("epmd", "erlang-base", fetch=may)
    fetch.program("rabbitmq-server", "rabbitmq-server", fetch=may)


def _nats(may: bool) -> None:
    fetch.nats(fetch=may)


def _beanstalkd(may: bool) -> None:
    fetch.program("beanstalkd", "beanstalkd", fetch=may)


def _kafka(may: bool) -> None:
    fetch.kafka(fetch=may)


def _weft(may: bool) -> None:
    """Does nothing: the program is installed with Weft."""


_WEFT = ("weft_queues", "WeftQueues"), ("weft",)
_STREAMS = ("redis_streams", "RedisStreams"), ("redis", "hiredis")
_LISTS = ("redis_lists", "RedisLists"), ("redis", "hiredis")
_CLASSIC = ("rabbitmq_queues", "RabbitClassic"), ("pika",)
_QUORUM = ("rabbitmq_queues", "RabbitQuorum"), ("pika",)
_JETSTREAM = ("jetstream", "JetStream"), ("nats-py",)
_TUBES = ("beanstalkd_tubes", "Beanstalkd"), ()
_TOPICS = ("kafka_topics", "KafkaTopics"), ("confluent-kafka",)

_FAN_OUT: Final = {
    "weft-disk": ("weft_topic", "WeftTopic"),
    "weft-os": ("weft_topic", "WeftTopic"),
    "redis-streams": ("redis_groups", "RedisGroups"),
    "redis-streams-always": ("redis_groups", "RedisGroups"),
    "rabbitmq-classic": ("rabbitmq_exchange", "ClassicExchange"),
    "rabbitmq-quorum": ("rabbitmq_exchange", "QuorumExchange"),
    "nats": ("jetstream_consumers", "JetStreamConsumers"),
}

_BY_WEFT: Final = (
    "producer with batches of 1,000, 32 under way; 16 pops and acks of 1,000 under way"
)
_BY_STREAMS: Final = "pipelines of 1,000 XADDs; XREADGROUP and one XACK of 1,000, in one pipeline"
_BY_PIKA: Final = "event-driven, confirms, 2,500 unconfirmed; prefetch 1,000, an ack for 200"
_BY_NATS: Final = "asynchronous, 4,000 unconfirmed; push consumer, AckPolicy.ALL"
_BY_KAFKA: Final = "produce_batch, acks=all, idempotent, linger 5 ms; a commit for 1,000"

_SYSTEMS: Final[tuple[System, ...]] = (
    System(
        "weft-disk", WeftDisk, *_WEFT, True, "fsynced, acks too", _BY_WEFT, _weft
    ),
    System("weft-os", WeftOs, *_WEFT, True, OS_ONLY, _BY_WEFT, _weft),
    System(
        "redis-lists", RedisNeverSyncs, *_LISTS, False, OS_ONLY + "; no acks: a pop is final",
        "RPUSH and LPOP of 1,000", _redis,
    ),
    System(
        "redis-streams", RedisEverySecond, *_STREAMS, True,
        OS_ONLY + ", fsynced within a second", _BY_STREAMS, _redis,
    ),
    System(
        "redis-streams-always", RedisAlways, *_STREAMS, True, "fsynced", _BY_STREAMS, _redis
    ),
    System(
        "rabbitmq-classic", RabbitServer, *_CLASSIC, True,
        "written; fsynced within its flush interval", _BY_PIKA, _rabbit,
    ),
    System("rabbitmq-quorum", RabbitServer, *_QUORUM, True, "fsynced", _BY_PIKA, _rabbit),
    System(
        "nats", NatsServer, *_JETSTREAM, True, OS_ONLY + ", fsynced within two minutes", _BY_NATS,
        _nats,
    ),
    System(
        "beanstalkd", BeanstalkdServer, *_TUBES, True, OS_ONLY + ", fsynced within 50 ms",
        "1,000 commands sent ahead of their answers", _beanstalkd,
    ),
    System("kafka", KafkaServer, *_TOPICS, True, OS_ONLY, _BY_KAFKA, _kafka),
    System(
        "weft-3", WeftCluster, *_WEFT, True, "fsynced on two nodes", _BY_WEFT, _weft, special=True
    ),
    System(
        "rabbitmq-quorum-3", RabbitCluster, *_QUORUM, True, "fsynced on a majority of three",
        _BY_PIKA, _rabbit, special=True,
    ),
    System(
        "nats-r3", NatsCluster, *_JETSTREAM, True, "in the page caches of a majority of three",
        _BY_NATS, _nats, special=True,
    ),
    System(
        "kafka-3", KafkaCluster, *_TOPICS, True, "in the page caches of two of three or more",
        _BY_KAFKA, _kafka, special=True,
    ),
)  # fmt: skip

ALL: Final = tuple(replace(each, fan_out=_FAN_OUT.get(each.name)) for each in _SYSTEMS)
BY_NAME: Final = {system.name: system for system in ALL}
SINGLE: Final = tuple(system.name for system in ALL if not system.special)
REPLICATED: Final = tuple(system.name for system in ALL if system.special)
FANNING: Final = tuple(system.name for system in ALL if system.fan_out)
