"""Joining, against a real gRPC server with a scripted Cluster service."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import zmq

from tests.contract.fake_cluster import CLUSTER, FakeCluster, fake_cluster
from tests.contract.served import eventually, refused, serve
from weft.errors import (
    ConnectionLost,
    InvalidArgument,
    NotPrimary,
    ProtocolError,
    ShuttingDown,
    StorageError,
    Unavailable,
    UsageError,
)
from weft.node_process import unused_ports
from weft.persistence.directory import DataDirectory
from weft.proto import weft_pb2 as pb
from weft.server.address import Address
from weft.server.config import Config
from weft.server.edges.peer_edge import PEER_VERSION
from weft.server.node import cluster_join as joining
from weft.server.node.cluster_join import ClusterJoin, Newcomer, is_known, open_directory
from weft.server.security.data_key import data_key

GRPC, ZMQ = Address("127.0.0.1", 7000), Address("127.0.0.1", 7001)


class Newbie:
    """The parts of a node that joining needs."""

    def __init__(self, *, has_view: bool = False) -> None:
        self.has_view = has_view
        self.peer_address = Address("127.0.0.1", 7003)
        self.adopted: list[bytes] = []

    def adopt(self, view: bytes) -> None:
        self.adopted.append(view)
        self.has_view = True


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with fake_cluster() as fake:
        yield fake


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "JOIN_S_MAX", 2.0)


def config(data: Path, join: str, **settings: Any) -> Config:
    return Config(data=str(data), join=join, **settings)


def nowhere() -> str:
    """An address without a listener, which the system gives to no other process."""
    return f"127.0.0.1:{unused_ports(1)[0]}"


def nobody_refuses() -> None:
    pytest.fail("it was refused")


def join(settings: Config, node: Newbie) -> ClusterJoin:
    """The whole flow; the directory is closed again."""
    directory = open_directory(settings, time.sleep)
    directory.close()
    made = ClusterJoin(settings, directory, GRPC, ZMQ)
    assert isinstance(node, Newcomer)
    made.enter(node, time.sleep, nobody_refuses)
    return made


def test_a_new_node_gets_a_directory_and_a_view_of_the_cluster(
    fake: FakeCluster, tmp_path: Path
) -> None:
    node = Newbie()
    join(config(tmp_path, fake.address), node).close()
    directory = DataDirectory.open(tmp_path)
    directory.close()
    assert (directory.cluster, directory.partitions) == (CLUSTER, 16)
    (asked,) = fake.joins
    assert (asked.node, asked.key) == (directory.node, directory.keys.public)
    assert (asked.grpc, asked.zmq) == ("127.0.0.1:7000", "127.0.0.1:7001")
    assert (asked.peer, asked.witness) == ("127.0.0.1:7003", False)
    assert node.adopted == [b"the view"]


def test_a_witness_says_so_and_the_peer_address_is_the_advertised_one(
    fake: FakeCluster, tmp_path: Path
) -> None:
    join(config(tmp_path, fake.address, witness=True, advertise="node-9"), Newbie()).close()
    assert fake.joins[0].witness
    assert fake.joins[0].peer == "node-9:7003"


def test_any_seed_will_do(fake: FakeCluster, tmp_path: Path) -> None:
    node = Newbie()
    join(config(tmp_path, f"{nowhere()},{fake.address}"), node).close()
    assert node.adopted


def test_a_seed_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    address = nowhere()
    node = Newbie()
    thread = threading.Thread(target=lambda: join(config(tmp_path, address), node).close())
    thread.start()
    time.sleep(0.5)
    with fake_cluster(int(address.rpartition(":")[2])):
        thread.join(100)
    assert node.adopted


def test_what_may_be_tried_again_is_tried_again(fake: FakeCluster, tmp_path: Path) -> None:
    node = Newbie()
    open_directory(config(tmp_path, fake.address), time.sleep).close()
    fake.failures = [Unavailable("one"), NotPrimary("two")]
    fake.failures.insert(0, Unavailable("the look at the cluster of a directory that is there"))
    join(config(tmp_path, fake.address), node).close()
    assert node.adopted
    assert fake.failures == []


def test_a_refusal_is_the_last_word(fake: FakeCluster, tmp_path: Path) -> None:
    settings = config(tmp_path, fake.address)
    open_directory(settings, time.sleep).close()
    directory = open_directory(settings, time.sleep)
    directory.close()
    fake.failures = [InvalidArgument("no such luck")]
    with pytest.raises(InvalidArgument, match=f"{fake.address}: no such luck"):
        ClusterJoin(settings, directory, GRPC, ZMQ).enter(Newbie(), time.sleep, nobody_refuses)


def test_without_any_member_it_gives_up_and_makes_nothing(tmp_path: Path) -> None:
    address = nowhere()
    with pytest.raises(ConnectionLost, match=rf"within 2 s: {address}: connection refused.*--join"):
        open_directory(config(tmp_path / "data", address), time.sleep)
    assert not (tmp_path / "data").exists()


def test_it_stops_waiting_when_it_is_told_to_stop(tmp_path: Path) -> None:
    def stop(seconds: float) -> None:
        raise ShuttingDown("SIGTERM")

    with pytest.raises(ShuttingDown):
        open_directory(config(tmp_path / "data", nowhere()), stop)


@pytest.mark.parametrize(("cluster", "partitions"), [("", 16), ("../../x", 16), ("ab" * 16, 0)])
def test_a_cluster_that_cannot_be_is_refused(
    fake: FakeCluster, tmp_path: Path, cluster: str, partitions: int
) -> None:
    fake.view.cluster, fake.view.partitions = cluster, partitions
    with pytest.raises(ProtocolError):
        open_directory(config(tmp_path / "data", fake.address), time.sleep)
    assert not (tmp_path / "data").exists()


def test_what_is_no_node_is_said(tmp_path: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with pytest.raises(ProtocolError, match=f"{address} is not a Weft node"):
        open_directory(config(tmp_path / "data", address), time.sleep)
    server.stop(0).wait()


def test_a_directory_of_another_cluster_is_refused(fake: FakeCluster, tmp_path: Path) -> None:
    DataDirectory.open(tmp_path).close()
    with pytest.raises(StorageError, match=f"not to {CLUSTER}"):
        open_directory(config(tmp_path, fake.address), time.sleep)


# --- a member that comes back -----------------------------------------------------------------


def known_as(fake: FakeCluster, path: Path, **other: str) -> None:
    directory = DataDirectory.open(path, CLUSTER, 16)
    directory.close()
    fields: dict[str, Any] = {
        "id": directory.node,
        "grpc": str(GRPC),
        "zmq": str(ZMQ),
        "peer": "127.0.0.1:7003",
        "key": directory.keys.public,
        "data_key": data_key(directory.keys).public,
    }
    fake.view.nodes.append(pb.Node(**(fields | other)))


def test_a_member_that_comes_back_asks_nobody_to_let_it_in(
    fake: FakeCluster, tmp_path: Path
) -> None:
    known_as(fake, tmp_path)
    node = Newbie(has_view=True)
    made = join(config(tmp_path, fake.address), node)
    eventually(lambda: made._thread is not None and not made._thread.is_alive())
    made.close()
    assert (fake.joins, node.adopted) == ([], [])


@pytest.mark.parametrize("field", ["grpc", "zmq", "peer", "key", "data_key"])
def test_a_member_that_has_moved_says_so(fake: FakeCluster, tmp_path: Path, field: str) -> None:
    known_as(fake, tmp_path, **{field: "elsewhere:1"})
    node = Newbie(has_view=True)
    made = join(config(tmp_path, fake.address), node)
    eventually(lambda: node.adopted == [b"the view"])
    made.close()
    assert len(fake.joins) == 1


def test_a_member_serves_although_nobody_answers(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, CLUSTER, 16).close()
    before = time.monotonic()
    made = join(config(tmp_path, nowhere()), Newbie(has_view=True))
    made.close()  # close also ends the wait
    assert time.monotonic() - before < joining.JOIN_S_MAX / 2


def returns(fake: FakeCluster, path: Path) -> ClusterJoin:
    """A member that the others know by another address returns."""
    known_as(fake, path, peer="elsewhere:1")
    settings = config(path, fake.address)
    directory = open_directory(settings, time.sleep)
    directory.close()
    return ClusterJoin(settings, directory, GRPC, ZMQ)


def test_a_member_that_cannot_be_made_known_serves_on_and_warns(
    fake: FakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = threading.Event()
    made = returns(fake, tmp_path)
    fake.failures = [Unavailable("not now")] * 100
    made.enter(Newbie(has_view=True), time.sleep, refused.set)
    eventually(lambda: "may not find the node" in caplog.text)
    made.close()
    assert made.refusal is None
    assert not refused.is_set()


def test_a_member_that_the_others_refuse_is_told(fake: FakeCluster, tmp_path: Path) -> None:
    refused = threading.Event()
    made = returns(fake, tmp_path)
    node = Newbie(has_view=True)
    fake.refuse_joins = UsageError("it has left for good")
    made.enter(node, time.sleep, refused.set)
    assert refused.wait(100)
    made.close()
    assert made.refusal is not None
    assert "it has left for good" in made.refusal.message
    assert node.adopted == []


def test_a_member_without_an_address_is_named(fake: FakeCluster, tmp_path: Path) -> None:
    fake.view.nodes.append(pb.Node(id="x", grpc="h:1", zmq="h:2", peer="0.0.0.0:7703"))
    with pytest.raises(UsageError, match=r"member x .* 0\.0\.0\.0:7703.*--advertise"):
        open_directory(config(tmp_path / "data", fake.address), time.sleep)
    assert not (tmp_path / "data").exists()


def test_a_node_that_is_not_in_the_view_is_not_known() -> None:
    assert not is_known(pb.ViewResponse(), pb.JoinRequest(node="x"))


def test_an_answer_that_does_not_tell_the_peer_port_is_enough() -> None:
    view = pb.ViewResponse(nodes=[pb.Node(id="x", grpc="g", zmq="z")])
    assert is_known(view, pb.JoinRequest(node="x", grpc="g", zmq="z", peer="p", key="k"))


def test_without_seeds_nothing_is_asked(tmp_path: Path) -> None:
    settings = Config(data=str(tmp_path))
    directory = open_directory(settings, time.sleep)
    directory.close()
    made = ClusterJoin(settings, directory, GRPC, ZMQ)
    made.enter(Newbie(), time.sleep, nobody_refuses)
    made.close()
    assert not made.wanted


def test_a_node_of_another_version_is_refused_by_a_real_one(tmp_path: Path) -> None:
    """Other nodes would drop its messages, so it would be an unreachable member."""
    served = serve(tmp_path)
    try:
        public = zmq.curve_keypair()[0].decode()
        me = pb.JoinRequest(
            node="0123456789abcdef", grpc="127.0.0.1:1", zmq="127.0.0.1:2", peer="127.0.0.1:3",
            key=public, peer_version=PEER_VERSION + 1,
        )  # fmt: skip
        says = f"speaks version {PEER_VERSION + 1} with other nodes, this cluster version"
        refused(lambda: served.cluster.Join(me), InvalidArgument, says)
        assert len(served.cluster.View(pb.ViewRequest()).nodes) == 1
    finally:
        served.close()


def test_a_newcomer_says_which_version_it_speaks(fake: FakeCluster, tmp_path: Path) -> None:
    join(config(tmp_path, fake.address), Newbie()).close()
    assert [each.peer_version for each in fake.joins] == [PEER_VERSION]
