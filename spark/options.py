"""The options of `format("weft")`: all options, checked before any request.

Names follow Kafka where Kafka has the same option. Spark passes option names in lower case and
values as text. An option that is unknown, or does not apply to the kind of query, is an error: with
an ignored option, a pipeline would silently do something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Flag, auto
from typing import Any, Final

from weft import limits
from weft.errors import InvalidArgument

from .access import ClusterAccess

#: Largest number of tasks of one micro-batch: each costs Spark a few milliseconds to start.
PARTITIONS_MAX: Final = 10_000
#: Default limits of a micro-batch: a backlog of any size must not become one batch, and in a batch
#: of a second or two Spark's fixed cost per batch is negligible.
MESSAGES_DEFAULT: Final = 1_000_000
BYTES_DEFAULT: Final = 512 * limits.MIB
MESSAGES_MAX: Final = 100_000_000
BYTES_MAX: Final = 1024 * 1024 * limits.MIB
VERSION_MAX: Final = (1 << 63) - 1


class Use(Flag):
    """The kinds of query."""

    STREAM_READ = auto()
    BATCH_READ = auto()
    STREAM_WRITE = auto()
    BATCH_WRITE = auto()


READ: Final = Use.STREAM_READ | Use.BATCH_READ
WRITE: Final = Use.STREAM_WRITE | Use.BATCH_WRITE
ANY: Final = READ | WRITE
_SAID: Final = {
    Use.STREAM_READ: "readStream",
    Use.BATCH_READ: "read",
    Use.STREAM_WRITE: "writeStream",
    Use.BATCH_WRITE: "write",
}


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise InvalidArgument(f"option {name} is empty")
    return value.strip()


def _whole(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        try:
            number = int(value.strip().replace("_", ""))
        except ValueError:
            raise InvalidArgument(f"option {name} is a whole number, not {value[:80]!r}") from None
        limits.check_range(f"option {name}", number, low, high)
        return number

    return parse


def _truth(name: str, value: str) -> bool:
    try:
        return {"true": True, "false": False}[value.strip().lower()]
    except KeyError:
        raise InvalidArgument(f"option {name} is true or false, not {value[:80]!r}") from None


def _one_of(*words: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.strip().lower() not in words:
            raise InvalidArgument(f"option {name} is {' or '.join(words)}, not {value[:80]!r}")
        return value.strip().lower()

    return parse


def _name(name: str, value: str) -> str:
    """The name of a queue, a subscription or an app."""
    try:
        limits.check_queue_name(value.strip())
    except InvalidArgument:
        raise InvalidArgument(
            f"option {name} is 1 to 80 of A-Z a-z 0-9 . _ and -, not {value[:100]!r}"
        ) from None
    return value.strip()


def _starting(name: str, value: str) -> str:
    if value.strip().lower() != "earliest":
        raise InvalidArgument(
            f"option {name}={value[:80]!r}: a queue has no past to start from. Acked messages are "
            "deleted, waiting messages are delivered oldest first, and the checkpoint and the "
            "subscription have the position of a query. Leave the option out, or set earliest; to "
            "skip waiting messages, purge the queue"
        )
    return "earliest"


@dataclass(frozen=True)
class Option:
    name: str
    uses: Use
    parse: Callable[[str, str], Any]
    default: str
    what: str


OPTIONS: Final = (
    Option("servers", ANY, _text, "`WEFT_SERVERS`, then 127.0.0.1:7700",
           "gRPC addresses of any nodes, HOST:PORT, with commas"),
    Option("subscribe", READ, _name, "required", "the queue to read"),
    Option("subscription", Use.STREAM_READ, _name, "required",
           "whose reservations these are: one name for each query, kept for its whole life"),
    Option("maxOffsetsPerTrigger", Use.STREAM_READ, _whole(1, MESSAGES_MAX),
           f"{MESSAGES_DEFAULT:,}", "messages in one micro-batch, at most"),
    Option("maxBytesPerTrigger", Use.STREAM_READ, _whole(1, BYTES_MAX),
           f"{BYTES_DEFAULT // limits.MIB} MiB", "bytes in one micro-batch, at most"),
    Option("minPartitions", Use.STREAM_READ, _whole(1, PARTITIONS_MAX),
           "by the number of messages", "tasks that a micro-batch is cut into, at least"),
    Option("failOnDataLoss", Use.STREAM_READ, _truth, "true",
           "whether a query fails when messages that its checkpoint names are gone"),
    Option("startingOffsets", Use.STREAM_READ, _starting, "earliest",
           "only `earliest` is taken: a queue has no past to start from"),
    Option("includeHeaders", READ, _truth, "false", "whether there is a column `headers`"),
    Option("maxMessages", Use.BATCH_READ, _whole(1, limits.POP_COUNT_MAX),
           f"{limits.POP_COUNT_MAX:,}", "messages in the snapshot: the next so many"),
    Option("queue", WRITE, _name, "required (or `topic`)", "the queue to write to"),
    Option("topic", WRITE, _name, "", "a topic, if delivery=at-least-once; else as `queue`"),
    Option("delivery", WRITE, _one_of("exactly-once", "at-least-once"), "exactly-once",
           "whether rows are staged and published together, or pushed as they come"),
    Option("txnAppId", WRITE, _name, "the query's id",
           "under which name published batches are remembered"),
    Option("txnVersion", Use.BATCH_WRITE, _whole(0, VERSION_MAX), "",
           "the number of this write under txnAppId: a number again is written once"),
    Option("token", ANY, _text, "`WEFT_TOKEN` of each process", "for nodes that want one"),
    Option("tls", ANY, _text, "`WEFT_TLS` of each process",
           "the PEM file of the nodes' authority, or `system`; the same path on every machine"),
    Option("tlsClientCert", ANY, _text, "",
           "the client's own certificate, for nodes that want one"),
    Option("tlsClientKey", ANY, _text, "", "its key"),
)  # fmt: skip
_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}

#: Spark's own options, which Spark also passes to sources and sinks.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
#: Kafka's option names, with hints for users of Kafka.
_HINTS: Final = {
    "kafka.bootstrap.servers": "it is `servers` here",
    "bootstrap.servers": "it is `servers` here",
    "subscribepattern": "a query reads one queue: use one stream for each, and union them",
    "assign": "a query reads a whole queue: use `subscribe`",
    "endingoffsets": "a batch read returns the messages that wait now; `maxMessages` limits it",
    "startingtimestamp": "a queue has no past to start from",
    "startingoffsetsbytimestamp": "a queue has no past to start from",
    "mintriggerdelay": "use a trigger",
    "groupidprefix": "it is `subscription` here",
    "kafka.group.id": "it is `subscription` here",
    "path": "a queue has no path: use `subscribe` to read and `queue` to write",
}


class Options:
    """The parsed options of a query, by name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values: dict[str, Any] = {}
        for name, value in given.items():
            key = name.lower()
            option = _BY_KEY.get(key)
            if option is not None:
                self._values[key] = option.parse(option.name, value)
            elif key not in _SPARKS:
                raise _unknown(name)
        if ("tlsclientcert" in self._values) != ("tlsclientkey" in self._values):
            raise InvalidArgument("options tlsClientCert and tlsClientKey go together: set both")
        if "tlsclientcert" in self._values and "tls" not in self._values:
            raise InvalidArgument("option tlsClientCert needs option tls: a file, or system")

    def check(self, use: Use) -> None:
        """Checks that every given option applies to this kind of query."""
        for key in self._values:
            option = _BY_KEY[key]
            if not option.uses & use:
                fits = ", ".join(said for each, said in _SAID.items() if option.uses & each)
                raise InvalidArgument(f"option {option.name} is for {fits}, not for {_SAID[use]}")

    def get(self, name: str, default: Any = None) -> Any:
        return self._values.get(name.lower(), default)

    def need(self, name: str, why: str) -> Any:
        if name.lower() not in self._values:
            raise InvalidArgument(f"option {name} is missing: {why}")
        return self._values[name.lower()]

    @property
    def access(self) -> ClusterAccess:
        servers = self.get("servers") or os.environ.get("WEFT_SERVERS") or "127.0.0.1:7700"
        return ClusterAccess(
            servers, self.get("token"), self.get("tls"),
            self.get("tlsClientCert"), self.get("tlsClientKey"),
        )  # fmt: skip


def _unknown(name: str) -> InvalidArgument:
    hint = _HINTS.get(name.lower())
    if hint is None:
        near = get_close_matches(name.lower(), _BY_KEY, 1)
        names = ", ".join(option.name for option in OPTIONS)
        hint = f"did you mean {_BY_KEY[near[0]].name}?" if near else f"the options are {names}"
    return InvalidArgument(f"option {name} is not one of weft's: {hint}")


@dataclass(frozen=True)
class StreamRead:
    access: ClusterAccess
    queue: str
    subscription: str
    messages_max: int
    bytes_max: int
    partitions_min: int
    fail_on_data_loss: bool
    #: The limits that the user set: the reader reports these to Spark.
    by_messages: bool
    by_bytes: bool

    @classmethod
    def of(cls, options: Options) -> StreamRead:
        options.check(Use.STREAM_READ)
        return cls(
            options.access,
            options.need("subscribe", "it names the queue to read"),
            options.need(
                "subscription",
                "it names the reservations of this query, which outlive it. Choose one for each "
                "query and keep it as long as its checkpoint",
            ),
            options.get("maxOffsetsPerTrigger", MESSAGES_DEFAULT),
            options.get("maxBytesPerTrigger", BYTES_DEFAULT),
            options.get("minPartitions", 1),
            options.get("failOnDataLoss", True),
            options.get("maxOffsetsPerTrigger") is not None,
            options.get("maxBytesPerTrigger") is not None,
        )


@dataclass(frozen=True)
class BatchRead:
    access: ClusterAccess
    queue: str
    #: None: all messages, or an error.
    messages: int | None

    @classmethod
    def of(cls, options: Options) -> BatchRead:
        options.check(Use.BATCH_READ)
        queue = options.need("subscribe", "it names the queue to read")
        return cls(options.access, queue, options.get("maxMessages"))


@dataclass(frozen=True)
class Write:
    access: ClusterAccess
    queue: str
    exactly_once: bool
    app: str | None
    version: int | None
    #: `queue` is from the option topic, and may be a topic of Weft.
    by_topic: bool = False

    @classmethod
    def of(cls, options: Options, use: Use) -> Write:
        options.check(use)
        queue, topic = options.get("queue"), options.get("topic")
        if queue and topic and queue != topic:
            raise InvalidArgument("options queue and topic name different queues: set one of them")
        app, version = options.get("txnAppId"), options.get("txnVersion")
        exactly_once = options.get("delivery", "exactly-once") == "exactly-once"
        if not exactly_once and app is not None:
            raise InvalidArgument("option txnAppId has no meaning with delivery=at-least-once")
        if use is Use.BATCH_WRITE and (app is None) != (version is None):
            raise InvalidArgument("options txnAppId and txnVersion go together: set both")
        return cls(
            options.access,
            queue or topic or options.need("queue", "it names the queue to write to"),
            exactly_once,
            app,
            version,
            topic is not None,
        )
