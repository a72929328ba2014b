"""A rolling restart under workers that hold their messages: no message is processed twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import weft
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process

WORKERS: Final = 6
HOLD_S: Final = 1.0
LEASE_MS: Final = 60_000
PATIENT_MS: Final = 100_000
BATCH: Final = 10


class Work:
    """The workers' results and errors."""

    def __init__(self) -> None:
        self.processed: Counter[bytes] = Counter()
        self.wrong: list[str] = []
        self.deliveries: Counter[int] = Counter()
        self.stopping = threading.Event()
        self._lock = threading.Lock()

    def run(self, servers: list[str]) -> None:
        with weft.connect(servers, timeout_ms=PATIENT_MS) as client:
            queue = client.queue("held")
            while not self.stopping.is_set():
                for message in queue.pop_many(1, wait_ms=200):
                    time.sleep(HOLD_S)
                    try:
                        queue.ack_many([message])
                    except weft.WeftError as error:
                        with self._lock:
                            self.wrong.append(f"{message.body!r}: {error!r}")
                    with self._lock:
                        self.processed[message.body] += 1
                        self.deliveries[message.deliveries] += 1


def _roll(made: Cluster, push: Callable[[], None]) -> None:
    for number in range(3):
        push()
        assert made.stop(number) == 0
        push()
        made.start(number)
        made.settled()


def test_no_message_is_processed_twice_and_no_lease_is_lost(tmp_path: Path) -> None:
    work, pushed = Work(), 0
    with cluster(3, data=tmp_path, durability="os") as made:
        made.settled()
        with weft.connect(made.servers, timeout_ms=PATIENT_MS) as client:
            client.create_queue("held", lease_ms=LEASE_MS)

            def push() -> None:
                nonlocal pushed
                for _ in range(BATCH):  # each on a different partition
                    client.queue("held").push(b"%d" % pushed)
                    pushed += 1

            workers = [
                threading.Thread(target=work.run, args=(made.servers,)) for _ in range(WORKERS)
            ]
            for worker in workers:
                worker.start()
            try:
                _roll(made, push)
                deadline = time.monotonic() + 100
                while len(work.processed) < pushed and time.monotonic() < deadline:
                    time.sleep(0.1)
            finally:
                work.stopping.set()
                for worker in workers:
                    worker.join()
    assert not work.wrong
    assert len(work.processed) == pushed
    assert work.processed.total() == pushed, "processed twice"
    assert set(work.deliveries) == {1}
