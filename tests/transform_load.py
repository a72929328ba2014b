"""Consume, transform, produce: workers that commit, killed and replaced, and an exact count.

Each worker is a process: it pops messages of "intake", and commits for each lot the acks, one
output for each message, and the number of messages, appended to a key. At the end every message
must be in the output exactly once, by distinct ids, and the numbers under the keys must add up to
all messages: both would show an effect that was lost or happened twice.

``python -m tests.transform_load SERVER...`` is one worker; other workers are Node.js programs that
use gRPC (`tests.node_packages`). A worker that ends before it is killed has failed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final

import weft
from tests import node_packages
from weft.limits import DAY_MS

INTAKE: Final = "intake"
OUTLET: Final = "outlet"
LEASE_MS: Final = 4_000
_KEYS: Final = [f"transformed/{number}" for number in range(8)]
#: The key of all Node.js workers.
_NODE_JS_KEY: Final = f"transformed/{OUTLET}"
_WORKERS: Final = 3
_BATCH: Final = 50
#: Between two pushes: the load shall last for as long as the faults.
_PAUSE_S: Final = 0.01
#: The life of a worker before it is killed, in seconds.
_LIFE_S: Final = (2.0, 6.0)
#: Bounds that only end a hang.
_DRAIN_S_MAX: Final = 400.0
_CALL_MS: Final = 60_000


def work(servers: Sequence[str]) -> None:
    """One worker, until it is killed or its parent is gone."""
    parent = os.getppid()
    with weft.connect(list(servers), timeout_ms=_CALL_MS) as client:
        intake = client.queue(INTAKE)
        while os.getppid() == parent:
            for lot in weft.lots(intake.pop_many(4 * _BATCH, wait_ms=500)):
                tx = client.transaction()
                tx.ack_many(lot)
                tx.push_many(OUTLET, [message.body for message in lot])
                tx.kv.append(random.choice(_KEYS), b"%d," % len(lot))
                try:
                    tx.commit()
                except weft.LeaseLost:
                    continue  # nothing was changed: another worker gets the messages


class Workers:
    """Worker processes, killed with SIGKILL after a short life and replaced."""

    def __init__(self, servers: list[str], rng: random.Random, *, node_js: bool) -> None:
        self._rng, self._environment = rng, dict[str, str](os.environ)
        self._command = [sys.executable, "-m", "tests.transform_load", *servers]
        if node_js:
            self._environment = node_packages.environment()
            self._command = node_packages.transform(servers, INTAKE, OUTLET)
        #: Exit codes of workers that ended by themselves.
        self.failed: list[int] = []
        self._over = Event()
        self.kills = 0
        self._threads = [Thread(target=self._run) for _ in range(_WORKERS)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            with subprocess.Popen(self._command, env=self._environment) as process:
                ended = self._over.wait(self._rng.uniform(*_LIFE_S))
                if (code := process.poll()) is not None:
                    self.failed.append(code)
                self.kills += not ended
                process.kill()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def run(
    servers: list[str],
    messages: int,
    rng: random.Random,
    disturb: Callable[[], object],
    *,
    node_js: bool = False,
) -> tuple[dict[str, int], list[str]]:
    """The load while `disturb` runs, and of at least so many messages, then the drain; returns
    counts and violations."""
    ended, pushed = Event(), list[int]()
    with weft.connect(servers, timeout_ms=_CALL_MS) as client:
        for name in (INTAKE, OUTLET):
            # A push may be repeated after an outage of any length in this run.
            client.create_queue(name, lease_ms=LEASE_MS, dedup_window_ms=DAY_MS)
        pushing = Thread(target=_push, args=(client.queue(INTAKE), messages, ended, pushed))
        pushing.start()
        workers = Workers(servers, rng, node_js=node_js)
        try:
            disturb()
            ended.set()
            pushing.join()
            assert pushed, "the producer has failed"
            messages = pushed[0]
            _until(lambda: _left(client.queue(INTAKE)) == 0, "the intake is not empty")
        finally:
            ended.set()
            workers.end()
        _until(lambda: _appended(client) >= messages, "effects on the table are missing")
        ids = _outputs(client.queue(OUTLET))
        appended = _appended(client)
    delivered = sum(map(len, ids.values()))
    counts = {"messages": messages, "delivered": delivered, "kills": workers.kills}
    lost = [f"message {number}" for number in range(messages) if b"%d" % number not in ids]
    twice = [f"message {body.decode()}: {len(found)} ids" for body, found in ids.items()
             if len(found) > 1]  # fmt: skip
    violations = [f"lost: {each}" for each in lost] + [f"twice: {each}" for each in twice]
    violations += [f"a worker ended with exit code {code}" for code in workers.failed]
    if appended != messages:
        violations.append(f"the table counts {appended} messages of {messages}")
    return counts, violations


def _push(queue: weft.Queue, messages: int, ended: Event, pushed: list[int]) -> None:
    count = 0
    while count < messages or not ended.is_set():
        queue.push_many([b"%d" % number for number in range(count, count + _BATCH)])
        count += _BATCH
        time.sleep(_PAUSE_S)
    pushed.append(count)


def _left(queue: weft.Queue) -> int:
    stats = queue.stats()
    if stats.uncounted_partitions:
        return -1
    return stats.ready + stats.leased + stats.delayed


def _appended(client: weft.Client) -> int:
    values = client.kv.lookup_many([*_KEYS, _NODE_JS_KEY]).values()
    return sum(sum(map(int, filter(None, value.split(b",")))) for value in values)


def _outputs(queue: weft.Queue) -> dict[bytes, set[weft.MessageId]]:
    found: dict[bytes, set[weft.MessageId]] = {}
    end = time.monotonic() + _DRAIN_S_MAX
    while _left(queue):
        assert time.monotonic() < end, f"{queue} cannot be drained: {queue.stats()}"
        messages = queue.pop_many(1000, wait_ms=200, lease_ms=60_000)
        for message in messages:
            found.setdefault(message.body, set()).add(message.id)
        try:
            queue.ack_many(messages)
        except weft.LeaseLost:
            continue  # a lead moved just then: they are delivered again, under the same ids
    return found


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _DRAIN_S_MAX
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.2)


if __name__ == "__main__":
    work(sys.argv[1:])
