"""The synchronous modules, and the differences between them and the asyncio client.

This table is the only place that lists differences. An entry that no source uses is an error, so
that the table cannot outlive its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Facade:
    """One synchronous class or function, and the original ("module:name", in weft.client).

    A method of `core` becomes a call of the core's coroutine, which `run` carries out over a
    blocking link. A method of `source` is converted: its body without `async` and `await`.
    """

    name: str
    source: str = ""
    core: str = ""
    #: A hand-written class with the methods that have no asyncio form.
    base: str = ""
    #: Names of the sources without a synchronous form.
    omitted: frozenset[str] = frozenset()
    #: How to wait for a coroutine: by the start of the awaited expression, the waiting function.
    #: All other awaited methods are synchronous in this facade, so their `await` is dropped.
    waits: Mapping[str, str] = field(default_factory=dict)
    #: Statements by their first line, and their synchronous form.
    statements: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """One generated module of weft.client."""

    module: str
    summary: str
    facades: tuple[Facade, ...]


QUEUE: Final = Facade(
    "Queue",
    source="async_queue:AsyncQueue",
    core="queue_core:QueueCore",
    # Consumers and workers call these methods on the core.
    omitted=frozenset(
        {
            "ack_claims", "alone", "breaks", "by_node", "confirm_acks", "give_back", "hand_out",
            "pop_groups", "push_reply", "quiet", "send_claims", "settle",
        }
    ),
    statements={
        "super().__init__(session, name, AsyncMessage)": (
            "self._core = QueueCore(session, name, Message)"
        ),
    },
)  # fmt: skip

CLIENT: Final = Facade(
    "Client",
    source="async_client:AsyncClient",
    waits={"self._admin.": "run", "self._multicasts.": "run", "self._staging.": "run"},
    statements={
        "self._open = Open()": "self._open = BackgroundWorkers(discovery, timeout_ms)",
        "self._router = Router(AsyncRuntime(), discovery)": (
            "self._router = Router(BlockingRuntime(), discovery)"
        ),
    },
)

KV: Final = Facade(
    "Kv",
    source="async_kv:AsyncKv",
    core="kv_core:KvCore",
    statements={
        "super().__init__(session)": "self._core = KvCore(session)",
        "return self._open.watch(self._session, options)": "return self._open.watch(options)",
    },
)

TRANSACTION: Final = Facade(
    "Transaction",
    source="transaction.async_transaction:AsyncTransaction",
    waits={"self._session.": "run"},
)

CONNECT: Final = Facade(
    "connect",
    source="async_client:connect",
    statements={
        "return Connecting(discovery, timeout_ms, connect_timeout_ms / 1000)": (
            "discovery.find(connect_timeout_ms / 1000)\nreturn Client(discovery, timeout_ms)"
        ),
    },
)

STAGE: Final = Facade(
    "Stage",
    core="pipeline.stage:StageCore",
    omitted=frozenset({"app", "attempt", "batch", "partition", "queue"}),
)

CONSUMER: Final = Facade(
    "Consumer",
    source="consumer.async_consumer:AsyncConsumer",
    base="ThreadConsumer",
    omitted=frozenset({"__init__", "__anext__", "__del__"}),
    waits={"self.prefetcher.": "self._background.wait"},
)

PRODUCER: Final = Facade(
    "Producer",
    source="producer.async_producer:AsyncProducer",
    statements={
        "if not isinstance(bodies, Iterable):": "",
        "arguments.check_iterable('bodies', bodies, 'bytes', also_async=True)": (
            "arguments.check_iterable('bodies', bodies, 'bytes')"
        ),
    },
)

WORKER: Final = Facade(
    "Worker",
    source="worker.async_worker:AsyncWorker",
    base="ThreadWorker",
    omitted=frozenset({"__init__", "_front", "_request_stop", "_signalled", "_work"}),
)

MESSAGE: Final = Facade(
    "Message",
    source="consumer.message:AsyncMessage",
    waits={"": "run"},
)

TARGETS: Final = (
    Target("sync_client", "The synchronous client; threads may share a client.", (CLIENT, CONNECT)),
    Target("sync_queue", "A queue for synchronous callers.", (QUEUE,)),
    Target(
        "sync_kv",
        "The operations of ZHT for synchronous callers.",
        (KV,),
    ),
    Target("transaction.sync_transaction", "The synchronous transaction.", (TRANSACTION,)),
    Target(
        "pipeline.sync_subscription",
        "Subscriptions and stages for synchronous callers.",
        (Facade("Subscription", core="pipeline.subscription:SubscriptionCore"), STAGE),
    ),
    Target(
        "producer.sync_topic",
        "A topic for synchronous callers.",
        (Facade("Topic", core="producer.multicast:TopicCore"),),
    ),
    Target(
        "consumer.sync_consumer",
        "The synchronous consumer: `for message in queue.consume()`.",
        (CONSUMER,),
    ),
    Target("consumer.sync_message", "A message of the synchronous client.", (MESSAGE,)),
    Target(
        "producer.sync_producer",
        "The synchronous producer: the client's background loop pushes the batches.",
        (PRODUCER,),
    ),
    Target("worker.sync_worker", "The synchronous worker: handlers run in threads.", (WORKER,)),
)

#: Names of the asyncio client, and their synchronous counterparts.
NAMES: Final = {
    "AsyncClient": "Client",
    "AsyncConsumer": "Consumer",
    "AsyncKv": "Kv",
    "AsyncKvWatch": "KvWatch",
    "AsyncMessage": "Message",
    "AsyncProducer": "Producer",
    "AsyncQueue": "Queue",
    "AsyncStage": "Stage",
    "AsyncSubscription": "Subscription",
    "AsyncTopic": "Topic",
    "AsyncTransaction": "Transaction",
    "AsyncWorker": "Worker",
    "Change": "ThreadChange",
    "Connecting": "Client",
    "M": "Message",
    "Open": "BackgroundWorkers",
}

#: Where generated code imports names from that its sources do not import.
HOMES: Final = {
    "BackgroundWorkers": "background_workers",
    "BlockingRuntime": "transport.runtime",
    "Consumer": "consumer.sync_consumer",
    "Kv": "sync_kv",
    "KvCore": "kv_core",
    "KvWatch": "thread_watch",
    "Message": "consumer.sync_message",
    "Producer": "producer.sync_producer",
    "Queue": "sync_queue",
    "Stage": "pipeline.sync_subscription",
    "Subscription": "pipeline.sync_subscription",
    "Topic": "producer.sync_topic",
    "ThreadChange": "producer.thread_change",
    "ThreadConsumer": "consumer.thread_consumer",
    "Transaction": "transaction.sync_transaction",
    "ThreadWorker": "worker.thread_worker",
    "Worker": "worker.sync_worker",
    "run": "transport.blocking_link",
}

#: Sentences of docstrings that are true of one client only, and their synchronous form.
SENTENCES: Final = {
    "One connection to Weft.": "One client of Weft, for any number of threads.",
    "A popped message, awaited.": "A popped message.",
    "iterable, also an async one, is": "iterable is",
    "any iterable, also an async one;": "any iterable;",
    "closing flushes.": "closing flushes. Threads may share one producer.",
    "even if the process is killed.": (
        "even if the process is killed. Iterate in one thread; any thread may settle the messages."
    ),
    "from another task than the one that works on the messages.": (
        "from another thread than the one that works on the messages, or after the last message."
    ),
    "A worker of one queue: await `run`; call `stop` on the same event loop.": (
        "A worker of one queue: call `run` in any thread, and `stop` from any other."
    ),
    (
        "Raises SystemExit or KeyboardInterrupt if a handler raised it. If the task that awaits "
        "`run` is cancelled, the worker cancels its handlers too and returns their messages."
    ): (
        "Raises DeadlineExceeded when too many handlers run past their time limit, and SystemExit "
        "or KeyboardInterrupt if a handler raised it."
    ),
}

#: Lines of examples, where more changes than `async` and `await`.
EXAMPLES: Final = {
    "asyncio.get_running_loop().call_later(60, worker.stop)": (
        "threading.Timer(60, worker.stop).start()"
    ),
    "(await worker.run())": "worker.run()",
    "weft.aio.connect": "weft.connect",
}
