"""`weft cluster recover` on real nodes: two of three disks are lost, and the third goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, Final

import pytest

import weft
from weft.client.admin.cluster import ClusterCalls
from weft.testing import Cluster, cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

COUNT: Final = 30
PATIENT_S: Final = 100.0
LEFT: Final = 2


def _weft(made: Cluster, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft.client.cli.main", "-s", made.node(LEFT).grpc]
    told = subprocess.run([*command, "cluster", *words], capture_output=True, text=True, timeout=60)
    assert told.returncode == code, (told.stdout, told.stderr)
    return told


def _report(made: Cluster, *lost: str) -> Any:
    """Ask until the dead nodes are reported as unreachable."""
    end = time.monotonic() + PATIENT_S
    while True:
        report = json.loads(_weft(made, "recover", "--json").stdout)
        if set(report["unreachable"]) == set(lost):
            return report
        assert time.monotonic() < end, report
        time.sleep(0.2)


def test_one_node_of_three_goes_on_after_the_other_two_disks_are_lost() -> None:
    with cluster(3) as made:
        made.settled()
        with weft.connect(made.servers) as client:
            client.create_queue("kept")
            for number in range(COUNT):
                client.queue("kept").push(b"%d" % number)
        time.sleep(2.0)  # learners get new entries with the second ping afterwards
        lost = [made.node(number).id for number in range(LEFT)]
        for number in range(LEFT):
            made.kill(number)
        report = _report(made, *lost)
        assert report["partitions"]
        assert not report["quorum"]
        assert (
            "weft cluster recover"
            in _weft(made, "leave", lost[0], "--force", "--yes", code=2).stderr
        )
        flags = [word for node in lost for word in ("--lost", node)]
        refused = _weft(made, "recover", *flags, "--accept-data-loss", "--yes", code=1)
        assert "--force-voters" in refused.stderr
        flags += ["--accept-data-loss", "--force-voters", "--yes", "--json"]
        done = json.loads(_weft(made, "recover", *flags).stdout)
        assert done["done"]
        with weft.connect([made.node(LEFT).grpc]) as client:
            queue, bodies = client.queue("kept"), set[bytes]()
            end = time.monotonic() + PATIENT_S
            while len(bodies) < COUNT and time.monotonic() < end:
                messages = queue.pop_many(100, wait_ms=500)
                bodies |= {message.body for message in messages}
                if messages:
                    queue.ack_many(messages)
            assert bodies == {b"%d" % number for number in range(COUNT)}
            queue.push(b"new")
        audit = (made.node(LEFT).data / "audit.jsonl").read_text()
        done_lines = [
            each
            for each in map(json.loads, audit.splitlines())
            if (each["action"], each["result"]) == ("Recover", "OK")
        ]
        (line,) = done_lines
        assert all(node in line["detail"] for node in lost)
        members = [node.id for node in ClusterCalls([made.node(LEFT).grpc]).places().nodes]
        assert members == [made.node(LEFT).id]
        _comes_back_in_vain(made, 1)


def _comes_back_in_vain(made: Cluster, number: int) -> None:
    """A lost node that is started again is refused, reports the reason, and exits."""
    node = made.node(number)
    node.spawn({}, [made.node(LEFT).grpc])
    end = time.monotonic() + PATIENT_S
    while node.running and time.monotonic() < end:
        time.sleep(0.2)
    assert not node.running
    assert "lost by this cluster" in node.log_tail() or "declared lost" in node.log_tail()
