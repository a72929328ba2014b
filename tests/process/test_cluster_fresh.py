"""A cluster that is used from its first moment on, while partitions are still being assigned."""

from __future__ import annotations

import time

import pytest

import weft
from weft.testing import cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

QUEUES = 6
ALONE = 60
#: Only a hang is an error: nothing may be refused and nothing lost.
PATIENT_MS = 100_000


@pytest.mark.parametrize("again", range(2))
def test_what_is_pushed_before_it_has_settled_is_there_afterwards(again: int) -> None:
    """The catalogue reaches a new node later than some of the partitions that it will lead."""
    pushed: set[bytes] = set()
    with cluster(1, durability="os") as made:
        with weft.connect(made.servers, timeout_ms=PATIENT_MS) as first:
            first.create_queue("early")
            for number in range(ALONE):  # one by one, so that the messages reach many partitions
                first.queue("early").push(b"early %d" % number)
                pushed.add(b"early %d" % number)
        made.add()
        made.add()
        with weft.connect(made.servers, timeout_ms=PATIENT_MS) as client:
            for number in range(QUEUES):
                name = f"q{number}"
                client.create_queue(name)
                # Through another node, too, which learned of the queue from others.
                with weft.connect(made.servers[number % 3], timeout_ms=PATIENT_MS) as other:
                    for index in range(20):
                        body = b"%s %d" % (name.encode(), index)
                        (client if index % 2 else other).queue(name).push(body)
                        pushed.add(body)
            made.settled()
            found: set[bytes] = set()
            end = time.monotonic() + PATIENT_MS / 1000
            while found != pushed and time.monotonic() < end:
                for name in ("early", *(f"q{number}" for number in range(QUEUES))):
                    messages = client.queue(name).pop_many(1000)
                    found |= {message.body for message in messages}
    assert found == pushed, f"{len(pushed - found)} are lost: {sorted(pushed - found)[:5]}"
