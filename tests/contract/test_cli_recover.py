"""`weft cluster recover`, against a scripted Cluster service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.contract.cluster_cli import PARTITIONS, A, B, C, three_nodes, weft, weft_json
from tests.contract.fake_cluster import FakeCluster
from weft.client.cli.main import cli
from weft.proto import weft_pb2 as pb


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with three_nodes() as fake:
        yield fake


@pytest.fixture
def lost(fake: FakeCluster) -> FakeCluster:
    """Two of three nodes are dead; two partitions have a copy left, and one has none."""
    for number in (0, 1):
        fake.places.nodes[number].alive = False
    fake.recovery.unreachable.extend([A, B])
    fake.recovery.catalogue = PARTITIONS
    fake.recovery.places.extend(
        [
            pb.LostPlace(partition=0, sync=[A, B], base=C, messages={"orders": 1200, "jobs": 3}),
            pb.LostPlace(partition=3, sync=[A, B]),
            pb.LostPlace(partition=PARTITIONS, sync=[A, B], base=C),
        ]
    )
    return fake


def test_recover_reports_and_changes_nothing_unless_loss_is_accepted(lost: FakeCluster) -> None:
    told = weft(lost, "recover", "--lost", "aa", "--lost", B).stdout
    assert "3 of 7 partitions" in told
    assert "jobs: 3, orders: 1,200" in told
    assert "1 partitions without a copy" in told
    assert "Unknown: messages that the lost nodes acknowledged in the last moments" in told
    assert f"--lost {A} --lost {B} --accept-data-loss --force-voters" in told
    assert not any(request.execute for request in lost.recovers)


def test_recover_warns_that_a_minority_may_be_outdated(lost: FakeCluster) -> None:
    assert "also in partitions that are not listed" in weft(lost, "recover").stdout
    lost.recovery.quorum = True
    assert "not listed" not in weft(lost, "recover").stdout


def test_recover_gathers_partitions_without_messages(lost: FakeCluster) -> None:
    del lost.recovery.places[:]
    lost.recovery.places.extend(
        [
            *(pb.LostPlace(partition=n, sync=[A, B], base=C) for n in (0, 1, 2)),
            pb.LostPlace(partition=3, sync=[A, B], base=C, messages={"orders": 5}),
            *(pb.LostPlace(partition=n, sync=[A, B], base=C) for n in (5, PARTITIONS)),
        ]
    )
    table = weft(lost, "recover").stdout.partition("partition  ")[2].partition("\n\n")[0]
    rows = [line.split("  ")[0] for line in table.splitlines()[1:]]
    assert rows == ["0 to 2", "3", "5", "catalogue"]


def test_recover_sends_what_was_reported(lost: FakeCluster) -> None:
    words = ["recover", "--lost", "aa", "--lost", B, "--accept-data-loss", "--force-voters"]
    found = weft_json(lost, *words, "--yes")
    assert found["done"]
    assert found["messages_kept"] == {"orders": 1200, "jobs": 3}
    assert [each["base"] for each in found["partitions"]] == [C, None, C]
    assert [each["catalogue"] for each in found["partitions"]] == [False, False, True]
    asked = lost.recovers[-1]
    assert list(asked.lost) == [A, B]
    assert list(asked.partitions) == [0, 3, PARTITIONS]
    assert asked.force_voters


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--accept-data-loss", "--yes"], "--lost NODE"),
        (["--lost", "aa", "--accept-data-loss"], "To confirm, pass --yes"),
        (["--lost", "zz", "--accept-data-loss", "--yes"], "is no member"),
    ],
)
def test_recover_is_not_done_by_accident(lost: FakeCluster, words: list[str], said: str) -> None:
    told = weft(lost, "recover", *words, code=2)
    assert said in told.stderr
    assert not any(request.execute for request in lost.recovers)


def test_forced_voters_need_the_one_node_that_decides(lost: FakeCluster) -> None:
    words = ["recover", "--lost", "aa", "--accept-data-loss", "--force-voters", "--yes"]
    servers = f"{lost.address},127.0.0.1:1"
    told = CliRunner().invoke(cli, ["-s", servers, "cluster", *words])
    assert told.exit_code == 2
    assert "exactly one deciding node" in told.stderr
    assert not lost.recovers


def test_with_nothing_lost_recover_says_so(fake: FakeCluster) -> None:
    fake.recovery.quorum = True
    assert "Nothing to recover: every partition" in weft(fake, "recover").stdout
    fake.recovery.unreachable.extend([A, B])
    told = weft(fake, "recover", "--lost", "aa").stdout
    assert "every partition has a live member" not in told, "B does not answer either"
    assert f"--lost if their disks are lost: {B}" in told
