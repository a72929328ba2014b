"""Real clusters under faults, in short: `make chaos` is the long form (docs/reliability.md).

Also the sizes with particular guarantees in PROTOCOL: one node, two, two with a witness; the
smaller side of a cut; and the operator's command that could lose data.
"""

from __future__ import annotations

import json
import os
import pty
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import weft
from tests.chaos.launch import one_run
from tests.process.netns import why_not
from weft.client.admin.cluster import ClusterCalls
from weft.client.sync_queue import Queue
from weft.testing import Cluster, cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

QUEUE: Final = "faults"
#: `make chaos` requires less; this machine may be busy with other tests.
PAUSE_S_MAX: Final = 30.0
#: Timeout of a push that cannot succeed.
PATIENCE_MS: Final = 3_000
#: Timeout of a push that must succeed: only a hang is an error.
PATIENT_MS: Final = 100_000


# --- scenarios ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["kill-leader", "rolling", "stop-all"])
def test_a_scenario(scenario: str, tmp_path: Path) -> None:
    seed = secrets.randbelow(1 << 31)
    outcome = one_run(scenario, seed, tmp_path, quick=True)
    print("\n" + outcome.line())
    assert outcome.ok, outcome.line()
    assert outcome.errors == 0, "the application saw an error"
    # Without these the run has shown nothing.
    for what in ("pushes", "plain pushes", "acks", "plain acks"):
        assert outcome.counts.get(what, 0) > 0, f"no {what}: {outcome.counts}"
    assert max(outcome.pause_s, outcome.plain_pause_s) < PAUSE_S_MAX, outcome.line()


# --- sizes --------------------------------------------------------------------------------------


@contextmanager
def a_queue(made: Cluster) -> Iterator[Queue]:
    made.settled()
    with weft.connect(made.servers, timeout_ms=PATIENT_MS) as client:
        client.create_queue(QUEUE)
        yield client.queue(QUEUE)


def push(queue: Queue, name: str, count: int = 40) -> set[bytes]:
    """Push one by one, so that the messages reach many partitions."""
    bodies = {f"{name} {number}".encode() for number in range(count)}
    for body in bodies:
        queue.push(body)
    return bodies


def drained(queue: Queue, wanted: int) -> list[bytes]:
    """Take all messages, and at least `wanted`: leases of dead consumers have to expire first."""
    bodies: list[bytes] = []
    moved = False
    end = time.monotonic() + PATIENT_MS / 1000
    while (messages := queue.pop_many(1000, wait_ms=500)) or (
        len(set(bodies)) < wanted and time.monotonic() < end
    ):
        if not messages:
            continue
        bodies += [message.body for message in messages]
        try:
            queue.ack_many(messages)
        except weft.LeaseLost:  # a lead moved just then: the messages are delivered again
            moved = True
    return sorted(set(bodies)) if moved else sorted(bodies)


def min_sync(made: Cluster) -> int:
    return ClusterCalls(made.servers).places().min_sync


def test_one_node_needs_nobody() -> None:
    with cluster(1) as made, a_queue(made) as queue:
        assert min_sync(made) == 1
        bodies = push(queue, "before")
        made.kill(0)
        made.start(0)
        bodies |= push(queue, "after")
        assert drained(queue, len(bodies)) == sorted(bodies)


def test_of_two_nodes_either_one_down_stops_pushes_and_loses_nothing() -> None:
    with cluster(2) as made, a_queue(made) as queue:
        assert min_sync(made) == 2
        bodies = push(queue, "before")
        tried: set[bytes] = set()
        for victim in (0, 1):
            made.kill(victim)
            body = f"without {victim}".encode()
            tried.add(body)
            with pytest.raises(weft.WeftError) as raised:
                queue.push(body, timeout_ms=PATIENCE_MS)
            assert raised.value.retriable
            made.start(victim)
            bodies |= push(queue, f"with {victim} again")
            made.settled()
        found = drained(queue, len(bodies))
        assert len(set(found)) == len(found), "something is there twice"
        assert bodies <= set(found) <= bodies | tried


def test_two_nodes_with_a_witness_go_on_without_either() -> None:
    with cluster(2, witness=True) as made, a_queue(made) as queue:
        bodies = push(queue, "before")
        for victim in (0, 1):
            made.kill(victim)
            began = time.monotonic()
            bodies |= push(queue, f"without {victim}", 5)
            assert time.monotonic() - began < PAUSE_S_MAX
            made.start(victim)
            made.settled()
        assert drained(queue, len(bodies)) == sorted(bodies)


def test_two_nodes_go_on_without_their_witness() -> None:
    with cluster(2, witness=True) as made, a_queue(made) as queue:
        bodies = push(queue, "before")
        made.kill(2)
        bodies |= push(queue, "without it")
        assert drained(queue, len(bodies)) == sorted(bodies)


# --- a cut ---


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_the_smaller_side_of_a_cut_acknowledges_and_lends_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.minority", str(tmp_path)],
        stdout=subprocess.PIPE,
        timeout=400,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said["led"] > 0, "it led nothing, so this has shown nothing"
    assert said["acked"] == 240, "the others have all that was acknowledged"
    assert "Pushed" not in said["pushed"], said["pushed"]
    assert said["lent"] == 0, "it lent what was acked at the others"
    assert said["left"] <= len(said["pushed"]), "what was acked has come back"


# --- the operator ---


def leave(made: Cluster, *flags: str, answers: bytes = b"") -> tuple[int, str]:
    """`weft cluster leave` of node 1 on a terminal; its exit code and output."""
    command = [sys.executable, "-m", "weft.client.cli.main", "-s", made.servers[0]]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*command, "cluster", "leave", made.node(1).id, *flags],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        os.close(theirs)
        os.write(ours, answers)
        said, _ = process.communicate(timeout=200)
    os.close(ours)
    return process.returncode, said.decode()


def test_an_operator_is_asked_twice_before_one_copy_is_left() -> None:
    with cluster(2) as made, a_queue(made) as queue:
        bodies = push(queue, "kept")
        code, said = leave(made)
        assert code == 2
        assert "one copy of every message. Start another node first, or pass --force" in said
        code, said = leave(made, "--force", answers=b"y\nn\n")
        assert code == 1
        assert " partitions? [y/N]" in said
        assert "if that disk fails, all messages are lost. Continue?" in said
        assert "nothing was changed" in said
        states = [node.state for node in ClusterCalls(made.servers).places().nodes]
        assert states == ["active", "active"]
        code, said = leave(made, "--force", answers=b"y\ny\n")
        assert code == 0, said
        assert "has left" in said
        made.kill(1)
        assert drained(queue, len(bodies)) == sorted(bodies)
        assert min_sync(made) == 1
