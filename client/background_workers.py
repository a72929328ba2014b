"""Producers, consumers and watches of a synchronous client, and their shared background loop."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable

from weft.errors import UsageError, WeftError

from .background import Background
from .consumer.prefetcher import ConsumerOptions, Prefetcher
from .consumer.sync_consumer import Consumer
from .consumer.sync_message import Message
from .kv_watch import WatchOptions
from .producer.accumulator import ProducerOptions
from .producer.sync_producer import Producer
from .queue_core import QueueCore
from .reply_queue import CallAnswer, CallArguments, ReplyQueue
from .routing.discovery import Discovery
from .thread_watch import KvWatch
from .worker.loop import WorkOptions
from .worker.sync_worker import Worker

log = logging.getLogger("weft.client")


class BackgroundWorkers:
    """Starts the background with the first producer or consumer, and ends it with the client."""

    def __init__(self, discovery: Discovery, timeout_ms: int) -> None:
        self._discovery = discovery
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._background: Background | None = None
        self._closed = False
        self._producers: set[Producer] = set()
        self._inboxes: set[Prefetcher[Message]] = set()
        self._replies: ReplyQueue | None = None

    def call(self, queue: QueueCore[Message], question: CallArguments) -> CallAnswer:
        background = self._start()
        with self._lock:
            if self._replies is None:
                self._replies = ReplyQueue(background.session)
            replies = self._replies
        return background.wait(replies.call(queue.name, question))

    def producer(self, queue: QueueCore[Message], options: ProducerOptions) -> Producer:
        background, discard = self._start(), self._producers.discard
        producer = Producer(background.session, queue.name, options, background.post, discard)
        self._producers.add(producer)
        return producer

    def consumer(self, queue: QueueCore[Message], options: ConsumerOptions) -> Consumer:
        consumer = Consumer(self._start(), queue, options, self._inboxes.discard)
        self._inboxes.add(consumer.prefetcher)
        return consumer

    def worker(
        self, queue: QueueCore[Message], handler: Callable[[Message], object], options: WorkOptions
    ) -> Worker:
        inboxes = self._inboxes
        return Worker(self._start(), queue, handler, options, inboxes.add, inboxes.discard)

    def watch(self, options: WatchOptions) -> KvWatch:
        return KvWatch(self._start(), options)

    def _start(self) -> Background:
        with self._lock:
            if self._closed:
                raise UsageError("the client is closed")
            if self._background is None:
                self._background = Background(self._discovery, self._timeout_ms)
                atexit.register(self._at_exit)
            self._background.check()
            return self._background

    def close(self) -> None:
        """Closes all, then raises the first error of a producer or a consumer."""
        with self._lock:
            self._closed = True
            background, self._background = self._background, None
        atexit.unregister(self._at_exit)
        if background is None or not background.running:
            return
        failures: list[WeftError] = []
        try:
            if self._replies is not None:
                background.wait(self._replies.close())
            for producer in list(self._producers):
                _try(producer.close, failures)
            for prefetcher in list(self._inboxes):
                _try(lambda: background.wait(prefetcher.end()), failures)  # noqa: B023
        finally:
            background.close()
        if failures:
            raise failures[0]

    def _at_exit(self) -> None:
        """The program exits without closing its client: store the sent messages anyway."""
        try:
            self.close()
        except WeftError as error:
            log.error("at exit: %s", error.message)


def _try(close: Callable[[], None], failures: list[WeftError]) -> None:
    try:
        close()
    except WeftError as error:
        failures.append(error)
