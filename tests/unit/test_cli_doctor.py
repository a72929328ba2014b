"""The doctor's checks, each with the finding it must make."""

from __future__ import annotations

import resource

import msgspec
import pytest

from weft.client.cli.doctor import cluster, machine, node
from weft.client.cli.doctor.finding import Finding
from weft.client.stats import QueueStats
from weft.dht.safety import Observation, assess
from weft.dht.view import Member, ReplicaSet, View
from weft.limits import MIB
from weft.proto import wire
from weft.proto.settings import Settings

STATUS = wire.StatusInfo(
    "n", "0.1.0", 1, "disk", 0, 0, 0, 0, 0, 3 << 30, 1 << 28, 0, 0, 0
)  # 3 GiB free, 256 MiB reserve


def stats(name: str, **fields: object) -> QueueStats:
    figures = dict.fromkeys(QueueStats.__dataclass_fields__, 0) | {"settings": Settings()}
    return QueueStats(**(figures | {"name": name} | fields))  # type: ignore[arg-type]


def test_what_is_not_ok_has_an_advice() -> None:
    with pytest.raises(AssertionError):
        Finding("FAIL", "check", "found")


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10), "FAIL"), ((3, 11), "OK"), ((3, 14), "OK"), ((3, 15), "FAIL")]
)
def test_python(version: tuple[int, int], level: str) -> None:
    assert machine.check_python(version).level == level


@pytest.mark.parametrize(
    ("limit", "level"),
    [(512, "FAIL"), (1024, "WARN"), (4096, "OK"), (resource.RLIM_INFINITY, "OK")],
)
def test_open_files(limit: int, level: str) -> None:
    assert machine.check_files(limit).level == level


def test_a_missing_extra_is_a_warning_that_says_how_to_get_it() -> None:
    found = machine.check_server_extra(["plyvel"])
    assert found.level == "WARN"
    assert "pip install 'weft[server]'" in found.advice
    assert machine.check_server_extra([]).level == "OK"


def test_versions_agree_or_not() -> None:
    assert node.check_version("s", "0.1.0", STATUS).level == "OK"
    assert node.check_version("s", "0.2.0", STATUS).level == "WARN"


@pytest.mark.parametrize(("free", "level"), [(1 << 27, "FAIL"), (3 << 27, "WARN"), (1 << 30, "OK")])
def test_space_against_the_reserve(free: int, level: str) -> None:
    status = msgspec.structs.replace(STATUS, free_bytes=free)
    assert node.check_space("s", status).level == level


def test_durability() -> None:
    assert node.check_durability("s", STATUS).level == "OK"
    status = msgspec.structs.replace(STATUS, durability="os")
    assert node.check_durability("s", status).level == "WARN"


def test_dead_letters_are_named_with_the_command_that_helps() -> None:
    source = stats("orders", settings=Settings(max_deliveries=3, dead_letter="orders.dead"))
    assert node.check_dead_letters("s", [source, stats("orders.dead")]).level == "OK"
    found = node.check_dead_letters("s", [source, stats("orders.dead", ready=7)])
    assert found.level == "WARN"
    assert "orders.dead holds 7" in found.found
    assert "weft queue redrive orders.dead" in found.advice


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, "WARN"),
        ({"waiting_pops": 1}, "OK"),
        ({"leased": 1}, "OK"),
        ({"oldest_ms": node.OLD_MS}, "OK"),
    ],
)
def test_old_messages_without_a_consumer(fields: dict[str, int], level: str) -> None:
    queue = stats("jobs", **({"ready": 1, "oldest_ms": node.OLD_MS + 1} | fields))
    assert node.check_forgotten("s", [queue]).level == level


def test_totals_that_miss_partitions_are_no_good_news() -> None:
    """With 2 of 3 nodes dead, "dead letters: none" was no finding but a lack of answers."""
    partial = stats("jobs", uncounted_partitions=124, missing_nodes=["77b1c0ffee"])
    for found in (node.check_dead_letters("s", [partial]), node.check_forgotten("s", [partial])):
        assert found.level == "WARN"
        assert "the messages of 124 partitions are not counted" in found.found
        assert "77b1" in found.found
    old = stats("old", ready=1, oldest_ms=node.OLD_MS * 2)
    assert "old:" in node.check_forgotten("s", [partial, old]).found


def test_a_long_list_is_cut() -> None:
    queues = [stats(f"q{n}", ready=1, oldest_ms=node.OLD_MS * 2) for n in range(8)]
    assert node.check_forgotten("s", queues).found.endswith("; and 3 more")


def test_a_disk_at_its_reserve_is_reported_as_refusing_although_the_reserve_is_free() -> None:
    """The store's memory and a margin count: pushes are refused already above the reserve."""
    status = msgspec.structs.replace(
        STATUS, free_bytes=292 * MIB, store_bytes=16 * MIB, reserve_bytes=256 * MIB, full=True,
        limit_bytes=300 * MIB,
    )  # fmt: skip
    found = node.check_space("s", status)
    assert found.level == "FAIL"
    assert "pushes are refused below 300.0 MiB" in found.found
    assert "soon" not in found.found
    assert found.advice.startswith("free space")
    small = msgspec.structs.replace(status, store_bytes=MIB)
    assert "too small for the reserve" in node.check_space("s", small).advice


def test_the_full_disk_of_another_node_is_reported() -> None:
    found = node.check_space("s", msgspec.structs.replace(STATUS, full_peers=["n2"]))
    assert found.level == "FAIL"
    assert "n2 at the reserve: some pushes are refused" in found.found


def test_the_verdict_decides_the_level() -> None:
    members = {name: Member("", grpc=f"{name}:7700") for name in "ab"}
    view = View(
        1, ("a", "b"), (), members, (ReplicaSet(1, ("a", "b")), ReplicaSet(1, ("b", "a"))), 2
    )
    for alive, role, level, word in (
        ("ab", "active", "OK", "settled: can lose no node without losing service"),
        ("ab", "sealing", "FAIL", "a failover is under way"),
        ("a", "active", "FAIL", "quorum lost: 1 of 2 voters alive, dead are b (b:7700)"),
    ):
        verdict = assess(Observation(view, frozenset(alive), [role, role]))
        found = cluster.check_verdict("s cluster", verdict)
        assert (found.level, word in found.found) == (level, True), found
    at_risk = assess(
        Observation(msgspec.structs.replace(view, min_sync=1), frozenset("ab"), [None, None])
    )
    assert cluster.check_verdict("s cluster", at_risk).level == "WARN"
