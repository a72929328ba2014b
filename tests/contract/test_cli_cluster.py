"""`weft cluster status` and `leave`, against a scripted Cluster service."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.contract.cluster_cli import PARTITIONS, A, B, C, three_nodes, weft, weft_json
from tests.contract.fake_cluster import FakeCluster
from weft.client.cli.cluster import leave
from weft.client.cli.cluster.status import short_ids
from weft.errors import InvalidArgument, Unavailable
from weft.proto import weft_pb2 as pb


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with three_nodes() as fake:
        yield fake


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave, "_POLL_S", 0.01)


# --- status -----------------------------------------------------------------------------------


def test_status_for_people(fake: FakeCluster) -> None:
    lines = weft(fake, "status").stdout.splitlines()
    assert lines[0].split() == [
        "node",
        "gRPC",
        "state",
        "alive",
        "votes",
        "leads",
        "follows",
        "learns",
    ]
    assert lines[1].split() == ["aaaa0000", "127.0.0.1:1", "active", "yes", "yes", "3", "2", "2"]
    assert lines[2].split() == ["bbbb0000", "127.0.0.1:2", "active", "yes", "yes", "2", "3", "2"]
    facts = dict(line.split("  ", 1) for line in lines[5:] if line)
    assert facts["partitions"].strip() == "6 and the catalogue of queues"
    assert facts["served"].strip() == "7 of 7  (7 active)"
    assert facts["verdict"].strip() == "settled"


def test_status_names_what_is_wrong(fake: FakeCluster) -> None:
    fake.places.places[1].role = "sealing"
    del fake.places.places[2].sync[1:]
    fake.places.places[PARTITIONS].lag[B] = 12
    fake.places.nodes[2].alive = False
    said = weft(fake, "status").stdout
    assert "3 of 7  (6 active, 1 sealing)" in said  # four have the dead node in their sync set
    assert "thin          1: 2\n" in said
    assert "behind        1: catalogue\n" in said
    assert "verdict       unavailable\n" in said
    assert "because       1 partition without a live copy: only bbcc0000 (127.0.0.1:3) had" in said
    assert "because       1 of 3 members is down: bbcc0000 (127.0.0.1:3)\n" in said
    assert "because       1 partition with fewer than 2 copies in step\n" in said
    assert "because       1 partition with a follower behind\n" in said
    assert "try           start bbcc0000 (127.0.0.1:3); only if the disks are lost" in said
    assert " NO " in said


def test_status_says_how_many_may_fail(fake: FakeCluster) -> None:
    assert "can lose 1 more node without losing service" in weft(fake, "status").stdout
    told = weft_json(fake, "status")["verdict"]
    assert (told["state"], told["can_lose_without_losing_service"]) == ("settled", 1)
    assert told["may_fail"] == [A, B, C]
    del fake.places.nodes[2:]
    del fake.places.voters[2:]
    for place in fake.places.places:
        place.sync[:], place.learners[:] = [A, B], []
    told = weft_json(fake, "status")["verdict"]
    assert (told["can_lose_without_losing_service"], told["may_fail"]) == (0, [])


def test_status_waits_until_it_is_settled(fake: FakeCluster) -> None:
    looks = []

    def come_back() -> None:
        looks.append(1)
        fake.places.nodes[2].alive = len(looks) > 2

    fake.on_places = come_back
    said = weft(fake, "status", "--wait", "settled", "--timeout-s", "60").stdout
    assert "verdict       settled\n" in said
    assert len(looks) == 3


def test_status_stops_waiting_and_says_why(fake: FakeCluster) -> None:
    fake.places.nodes[2].alive = False
    told = weft(fake, "status", "--wait", "settled", "--timeout-s", "0.1", code=1)
    assert "not settled after 0.1 s: unavailable: " in told.stderr
    assert "1 of 3 members is down: bbcc0000 (127.0.0.1:3)" in told.stderr


def test_status_of_many_thin_partitions_is_short(fake: FakeCluster) -> None:
    for _ in range(20):
        fake.places.places.add(sync=[A], role="active")
    assert "20: 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, ...\n" in weft(fake, "status").stdout


def test_status_partition_by_partition(fake: FakeCluster) -> None:
    fake.places.places[0].lag[C] = 3
    lines = weft(fake, "status", "--partitions").stdout.splitlines()
    rows = lines[-(PARTITIONS + 1) :]
    assert rows[0].split() == ["0", "1", "active", "aaaa0000", "bbbb0000", "bbcc0000", "bbcc0000:3"]
    assert rows[-1].split()[0] == "catalogue"


def test_status_as_json(fake: FakeCluster) -> None:
    told = weft_json(fake, "status")
    assert told["settled"] is True
    assert told["partitions"]["total"] == PARTITIONS + 1
    assert told["partitions"]["roles"] == {"active": 7}
    assert told["nodes"][0]["id"] == A
    assert told["nodes"][0]["holds"] == 7
    assert "places" not in told
    places = weft_json(fake, "status", "--partitions")["places"]
    assert places[1] == {
        "partition": "1", "epoch": 2, "role": "active", "sync": [B, C], "learners": [A], "lag": {},
    }  # fmt: skip


def test_status_of_a_node_that_cannot_say(fake: FakeCluster) -> None:
    fake.failures = [Unavailable("no view yet")]
    told = weft(fake, "status", code=1)
    assert "no view yet" in told.stderr


def test_ids_are_as_long_as_they_must_be() -> None:
    assert short_ids(["aaaabbbbc", "aaaabbbbd"]) == {
        "aaaabbbbc": "aaaabbbbc",
        "aaaabbbbd": "aaaabbbbd",
    }


# --- leave ------------------------------------------------------------------------------------


def hand_over(fake: FakeCluster, node: str) -> None:
    """The node hands over one partition with each status query from now on."""

    def give() -> None:
        if node not in fake.leaves:
            return
        for place in fake.places.places:
            if node in place.sync or node in place.learners:
                rest = [each for each in (*place.sync, *place.learners) if each != node]
                del place.sync[:], place.learners[:]
                place.sync.extend(rest)
                return

    fake.on_places = give


def four(fake: FakeCluster) -> None:
    """Add a fourth member, so that any one may leave."""
    fake.places.nodes.append(pb.Node(id="dd" * 8, grpc="127.0.0.1:4", state="active", alive=True))


@pytest.mark.parametrize("name", [C, "bbc", "127.0.0.1:2"])
def test_leave_by_id_beginning_or_address(fake: FakeCluster, name: str) -> None:
    meant = B if name == "127.0.0.1:2" else C
    hand_over(fake, meant)
    told = weft(fake, "leave", name, "--yes")
    assert fake.leaves == [meant]
    assert told.stdout.startswith(f"{meant} has left the cluster and handed over 7 partitions.")
    progress = told.stderr.splitlines()
    assert progress[0] == "6 of 7 partitions to hand over"
    assert progress[-1] == "0 of 7 partitions to hand over"
    assert len(progress) == 7


def test_leave_as_json(fake: FakeCluster) -> None:
    hand_over(fake, A)
    assert weft_json(fake, "leave", "aa", "--yes") == {"node": A, "handed_over": 7}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x", "x is no member of the cluster: the members are aaaa"),
        ("bb", "bb is the beginning of several ids"),
    ],
)
def test_leave_must_mean_one(fake: FakeCluster, name: str, says: str) -> None:
    told = weft(fake, "leave", name, "--yes", code=2)
    assert says in told.stderr
    assert fake.leaves == []


def test_a_script_says_yes(fake: FakeCluster) -> None:
    assert "To confirm, pass --yes" in weft(fake, "leave", "aa", code=2).stderr
    assert fake.leaves == []


def two(fake: FakeCluster) -> None:
    del fake.places.nodes[2]


def test_leave_that_leaves_one_copy_is_refused(fake: FakeCluster) -> None:
    two(fake)
    told = weft(fake, "leave", "aa", "--yes", code=2)
    assert "one copy of every message" in told.stderr
    assert "--force" in told.stderr
    assert fake.leaves == []
    hand_over(fake, A)
    weft(fake, "leave", "aa", "--yes", "--force")
    assert fake.leaves == [A]


def test_those_that_are_away_leaving_or_witnesses_are_no_copies(fake: FakeCluster) -> None:
    for other in ({"alive": False}, {"state": "leaving"}, {"witness": True}):
        kept = pb.Node()
        kept.CopyFrom(fake.places.nodes[2])
        for name, value in other.items():
            setattr(fake.places.nodes[2], name, value)
        assert "one copy of every message" in weft(fake, "leave", "aa", "--yes", code=2).stderr
        fake.places.nodes[2].CopyFrom(kept)


def test_a_witness_may_always_leave(fake: FakeCluster) -> None:
    fake.places.nodes.append(pb.Node(id="ee" * 8, grpc="127.0.0.1:5", witness=True, alive=True))
    two(fake)
    assert weft(fake, "leave", "ee", "--yes").stdout.startswith("ee")
    assert fake.leaves == ["ee" * 8]


def test_the_last_node_cannot_leave(fake: FakeCluster) -> None:
    del fake.places.nodes[1:]
    told = weft(fake, "leave", "aa", "--yes", "--force", code=2)
    assert "no other node can take over its partitions" in told.stderr
    assert fake.leaves == []


def test_a_dead_node_with_the_only_copy_is_not_given_up(fake: FakeCluster) -> None:
    four(fake)
    fake.places.nodes[0].alive = False
    del fake.places.places[3].sync[1:]
    for more in ([], ["--force"]):
        told = weft(fake, "leave", "aa", "--yes", *more, code=2)
        assert "has the only copy of 1 partitions" in told.stderr
        assert "weft cluster recover" in told.stderr
    assert fake.leaves == []


def test_a_hand_over_that_takes_long_goes_on_by_itself(fake: FakeCluster) -> None:
    told = weft(fake, "leave", "aa", "--yes", "--wait-ms", "50", code=1)
    assert f"{A} still holds 7 partitions; the handover continues" in told.stderr
    assert fake.leaves == [A]


def test_a_refusal_of_the_cluster_is_said(fake: FakeCluster) -> None:
    def refuse() -> None:
        fake.failures = [InvalidArgument("not now")]

    fake.on_places = refuse
    assert "not now" in weft(fake, "leave", "aa", "--yes", code=2).stderr


@pytest.mark.parametrize(("answers", "code"), [(b"y\ny\n", 0), (b"y\nn\n", 1), (b"n\n", 1)])
def test_force_asks_twice_and_says_what_can_be_lost(
    fake: FakeCluster, answers: bytes, code: int
) -> None:
    two(fake)
    hand_over(fake, A)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "weft.client.cli.main", "-s", fake.address]
    with subprocess.Popen(
        [*command, "cluster", "leave", "aa", "--force"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        os.write(ours, answers)
        _, said = process.communicate(timeout=100)
    os.close(ours)
    assert process.returncode == code, said
    assert b"which holds 7 partitions?" in said
    assert (b"if that disk fails, all messages are lost. Continue?" in said) is (
        answers[:1] == b"y"
    )
    assert fake.leaves == ([A] if code == 0 else [])


def test_a_node_that_answers_without_a_quorum_is_not_said_to_be_silent(fake: FakeCluster) -> None:
    fake.failures = [Unavailable("quorum lost: 1 of 3 voters alive")]
    told = weft(fake, "status", code=1)
    assert "quorum lost: 1 of 3" in told.stderr
    assert "no node answered" not in told.stderr
    assert "weft serve" not in told.stderr
