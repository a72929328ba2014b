"""The HTTP edge over real sockets: its pages, its refusals, and that no client can block it."""

from __future__ import annotations

import http.client
import select
import socket
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.contract.served import Served, serve
from weft.errors import Unavailable
from weft.proto import wire
from weft.server.address import Address
from weft.server.edges import http_edge
from weft.server.edges.call_log import CallLog
from weft.server.edges.http_edge import HttpEdge
from weft.server.observability import health as health_module
from weft.server.observability.health import DRAINING, SERVING, STARTING, Health
from weft.server.observability.histogram import Histogram
from weft.server.observability.metrics import Metrics
from weft.server.observability.node_stats import NodeStats

STATUS = wire.StatusInfo("n1", "1", 1, "disk", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class OneNode:
    """A scripted node: answers, hangs, or has ended."""

    def __init__(self) -> None:
        self.full = False
        self.answers = True
        self.ended = False
        self.looks = 0

    def look(self, look: Callable[[], None]) -> bool:
        self.looks += 1
        if self.answers and not self.ended:
            look()
        return not self.ended

    def node_stats(self, *, queues: bool) -> Generator[None, None, NodeStats]:
        yield
        return NodeStats(STATUS, self.full)


class Edge:
    def __init__(self) -> None:
        self.node = OneNode()
        self.health = Health(self.node)
        metrics = Metrics(Histogram(), Histogram(), CallLog(), dict)
        self.edge = HttpEdge(Address("127.0.0.1", 0), self.health, metrics)
        self.address = self.edge.start()

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self.address, timeout=100)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        with socket.create_connection(self.address, timeout=100) as link:
            link.sendall(data)
            received = b""
            while chunk := link.recv(65536):
                received += chunk
            return received


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edge]:
    monkeypatch.setattr(health_module, "POLL_S_MAX", 0.2)
    monkeypatch.setattr(health_module, "FRESH_S", 0.0)
    made = Edge()
    yield made
    made.edge.stop()


def test_a_starting_node_lives_and_is_not_ready(edge: Edge) -> None:
    assert edge.health.phase == STARTING
    assert edge.get("/healthz")[0] == 200
    assert edge.get("/readyz") == (503, "starting\n")


def test_a_serving_node_is_both(edge: Edge) -> None:
    edge.health.phase = SERVING
    assert edge.get("/healthz") == (200, "serving\n")
    assert edge.get("/readyz") == (200, "serving\n")


def test_a_draining_node_lives_and_is_not_ready(edge: Edge) -> None:
    edge.health.phase = DRAINING
    assert edge.get("/healthz") == (200, "draining\n")
    assert edge.get("/readyz") == (503, "draining\n")


def test_a_full_disk_is_alive_and_not_ready(edge: Edge) -> None:
    edge.health.phase, edge.node.full = SERVING, True
    assert edge.get("/healthz")[0] == 200
    status, why = edge.get("/readyz")
    assert (status, "reserve" in why) == (503, True)


@pytest.mark.parametrize("how", ["answers", "ended"])
def test_a_thread_that_makes_no_rounds_is_noticed(edge: Edge, how: str) -> None:
    edge.health.phase = SERVING
    setattr(edge.node, how, how == "ended")
    for path in ("/healthz", "/readyz", "/metrics"):
        assert edge.get(path)[0] == 503, path
    edge.node.answers, edge.node.ended = True, False
    assert edge.get("/healthz")[0] == 200


def test_many_readers_share_one_look(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "FRESH_S", 60.0)
    edge.health.phase = SERVING
    for _ in range(10):
        assert edge.get("/readyz")[0] == 200
    assert edge.node.looks == 2  # one check, of two steps


def test_metrics_and_the_list_of_pages(edge: Edge) -> None:
    status, text = edge.get("/metrics?name=x")
    assert status == 200
    assert 'weft_node_info{durability="disk",node="n1"' in text
    assert edge.get("/")[1].split() == ["/", "/healthz", "/metrics", "/readyz"]


def test_head_has_no_body(edge: Edge) -> None:
    answer = edge.raw(b"HEAD /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /secret HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\xff\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * (http_edge.HEAD_BYTES_MAX + 1), 431),
    ],
)
def test_what_is_not_a_request_is_refused(edge: Edge, request_head: bytes, status: int) -> None:
    assert edge.raw(request_head).split(b" ")[1] == str(status).encode()
    assert edge.get("/healthz")[0] == 200


def test_405_says_what_is_allowed(edge: Edge) -> None:
    assert b"\r\nAllow: GET, HEAD\r\n" in edge.raw(b"PUT /metrics HTTP/1.1\r\n\r\n")


def test_a_head_that_trickles_is_cut(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_edge, "HEAD_S_MAX", 1.0)
    for _ in range(5):  # a byte sent to the closed connection discards the last answer
        with socket.create_connection(edge.address, timeout=100) as link:
            link.sendall(b"GET /")
            end = time.monotonic() + 50
            try:
                while not select.select([link], [], [], 0.2)[0]:
                    assert time.monotonic() < end, "every byte sets the clock back"
                    link.sendall(b"x")
                assert link.recv(100).startswith(b"HTTP/1.1 408")
            except ConnectionError:
                continue
            return
    pytest.fail("it is not told why it is cut")


def test_a_connection_too_many_is_closed(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_edge, "CONNECTIONS_MAX", 2)
    held = [socket.create_connection(edge.address, timeout=100) for _ in range(2)]
    try:
        for link in held:
            link.sendall(b"GET")
        time.sleep(0.1)
        with socket.create_connection(edge.address, timeout=100) as third:
            assert third.recv(100) == b""
    finally:
        for link in held:
            link.close()
    end = time.monotonic() + 100
    while True:
        try:
            assert edge.get("/healthz")[0] == 200
            break
        except (http.client.HTTPException, ConnectionError):
            assert time.monotonic() < end, "the places are not given back"
            time.sleep(0.02)


def test_a_port_in_use_says_what_to_do(edge: Edge) -> None:
    metrics = Metrics(Histogram(), Histogram(), CallLog(), dict)
    with pytest.raises(Unavailable, match=r"Address already in use.*--http-listen"):
        HttpEdge(edge.address, edge.health, metrics).start()


# --- a real node behind it --------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = serve(tmp_path)
    yield made
    made.close()


def test_a_real_nodes_figures(served: Served) -> None:
    health = Health(served.node)
    node = served.node
    metrics = Metrics(node.round_times, node.fsync_times, served.edge.calls, dict)
    edge = HttpEdge(Address("127.0.0.1", 0), health, metrics)
    address = edge.start()
    try:
        name = served.make()
        served.push(name, b"1", b"2", b"3")
        served.ack(name, *(message.receipt for message in served.pop(name, 2)))
        health.phase = SERVING
        connection = http.client.HTTPConnection(*address, timeout=100)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
    finally:
        edge.stop()
    for line in (
        f'weft_pushed_messages_total{{queue="{name}"}} 3.0',
        f'weft_delivered_messages_total{{queue="{name}"}} 2.0',
        f'weft_acked_messages_total{{queue="{name}"}} 2.0',
        f'weft_ready_messages{{queue="{name}"}} 1.0',
        'weft_grpc_calls_total{code="OK",method="Push"} 1.0',
        'weft_grpc_call_seconds_count{method="Ack"} 1.0',
        'weft_cluster_nodes{state="active"} 1.0',
        "weft_under_replicated_partitions 0.0",
    ):
        assert line in text.splitlines(), line


def test_a_stopped_node_does_not_answer(tmp_path: Path) -> None:
    made = serve(tmp_path)
    node = made.node
    made.close()
    assert node.look(lambda: None) is False
