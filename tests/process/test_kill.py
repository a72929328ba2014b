"""kill -9 at random moments under load: no acknowledged push is lost, no acked message returns.

A kill leaves the page cache: the effect of an fsync is tested by the engine's power-loss tests.
WEFT_TEST_KILLS sets how often the node is killed, WEFT_TEST_SEED repeats a run's decisions (not its
timing: processes and disks have their own).
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.process.live_node import LiveNode
from tests.process.load import QUEUE, Consumer, Producer, Target, Worker, drain, working
from tests.process.wire_client import WireClient
from tests.total_queue import History, check
from weft import limits
from weft.proto.settings import Settings

KILLS: Final = int(os.environ.get("WEFT_TEST_KILLS", 50))
PRODUCERS: Final = 3
CONSUMERS: Final = 3
#: Lifetime of a node, in seconds from when it serves.
LIFE_SECONDS: Final = (0.05, 0.7)
#: One kill in this many comes before the node serves: in the middle of its recovery.
EARLY_EVERY: Final = 7
EARLY_SECONDS_MAX: Final = 0.5


def _kill_and_start(node: LiveNode, target: Target, history: History, rng: random.Random) -> None:
    time.sleep(rng.uniform(*LIFE_SECONDS))
    history.restarted()
    node.kill()
    if rng.randrange(EARLY_EVERY) == 0:
        node.spawn()
        time.sleep(rng.random() * EARLY_SECONDS_MAX)
        history.restarted()
        node.kill()
    target.moved(node.start().zmq)


def _counts(workers: list[Worker]) -> Counter[str]:
    return sum((worker.counts for worker in workers), Counter[str]())


def _misses(counts: Counter[str], kills: int) -> list[str]:
    """Situations that have not occurred yet."""
    needed = {"unanswered": kills, "duplicates recognised": 1, "acks in doubt": 1}
    return [what for what, least in needed.items() if counts[what] < least]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(200 + 20 * KILLS)
def test_kill_under_load(tmp_path: Path) -> None:
    seed = int(os.environ.get("WEFT_TEST_SEED") or secrets.randbelow(1 << 31))
    print(f"\nWEFT_TEST_SEED={seed} WEFT_TEST_KILLS={KILLS}")
    rng, target, history = random.Random(seed), Target(), History()
    workers: list[Worker] = [Producer(n, target, history, seed) for n in range(PRODUCERS)]
    workers += [Consumer(f"consumer-{n}", target, history, seed) for n in range(CONSUMERS)]
    with LiveNode(tmp_path / "node") as node:
        with WireClient(node.start().zmq) as client:
            # A busy machine runs this for longer than the default window.
            client.create(QUEUE, Settings(dedup_window_ms=limits.DEDUP_WINDOW_MS_MAX))
        with working(workers, target, node.kill):
            target.moved(node.zmq)
            kills = 0
            # On a busy machine fewer calls are interrupted: then the node is killed more often.
            while kills < KILLS or (kills < 4 * KILLS and _misses(_counts(workers), kills)):
                kills += 1
                _kill_and_start(node, target, history, rng)
                for worker in workers:
                    if worker.error is not None:
                        raise worker.error
        # Once more: the restart voids the consumers' remaining leases, so that all can be drained.
        history.restarted()
        node.kill()
        with WireClient(node.start().zmq) as client:
            drain(client, history)
        assert node.stop() == 0

    verdict = check(history)
    counts = _counts(workers)
    print(verdict.report(), "\n" + "\n".join(f"  {what}: {n}" for what, n in counts.items()))
    assert verdict.ok, verdict.report()
    # The kills must have interrupted something, or this test has shown nothing.
    assert not _misses(counts, kills)
