"""Error messages of a client, an operator's call and a joining node for each connection mistake.

Real gRPC servers with real certificates, one for each mistake; none of them runs a node.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

import weft
from weft.client.admin.certificate_authority import Authority
from weft.client.admin.cluster import ClusterCalls
from weft.client.cli.doctor.reach import check_health
from weft.errors import ConnectionLost, InvalidArgument, ProtocolError, TlsError, WeftError
from weft.server.address import Address
from weft.server.config import Config
from weft.server.node.seeds import Seeds
from weft.server.security.tls import Introduction

HOST = "127.0.0.1"


class Files:
    """Two authorities; `good` signs for this host, for another one, and an expired certificate."""

    def __init__(self, folder: Path) -> None:
        self.good, self.other = folder / "good", folder / "other"
        authority = Authority.plan(self.good)
        authority.create(9, [], [])
        authority.sign_all([HOST, "elsewhere.example"], ["known"], 9)
        authority.sign_all(["expired.example"], [], 0)
        stranger = Authority.plan(self.other)
        stranger.create(9, [], [])
        stranger.sign_all([HOST], ["stranger"], 9)
        # An expired certificate for this host: its file must have another name.
        (folder / "late").mkdir()
        for name in ("ca.pem", "ca.key"):
            (folder / "late" / name).write_bytes((self.good / name).read_bytes())
        Authority.load(folder / "late").sign_all([HOST], [], 0)
        self.late = folder / "late"

    def ca(self) -> str:
        return str(self.good / "ca.pem")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@contextmanager
def served(folder: Path | None, host: str = HOST, client_ca: Path | None = None) -> Iterator[str]:
    """A gRPC server without services: a call that gets through ends with UNIMPLEMENTED."""
    server = grpc.server(ThreadPoolExecutor(2))
    if folder is None:
        port = server.add_insecure_port(f"{HOST}:0")
    else:
        pair = (folder / f"{host}.key").read_bytes(), (folder / f"{host}.pem").read_bytes()
        authority = client_ca.read_bytes() if client_ca is not None else None
        credentials = grpc.ssl_server_credentials([pair], authority, client_ca is not None)
        port = server.add_secure_port(f"{HOST}:0", credentials)
    server.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        server.stop(0).wait()


def connect(server: str, tls: weft.Tls | None, monkeypatch: pytest.MonkeyPatch) -> None:
    weft.connect(server, tls=tls or False, connect_timeout_ms=3000).close()


def cluster_status(server: str, tls: weft.Tls | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if tls is not None:
        monkeypatch.setenv("WEFT_TLS", tls.ca or "system")
        if tls.cert and tls.key:
            monkeypatch.setenv("WEFT_TLS_CLIENT_CERT", tls.cert)
            monkeypatch.setenv("WEFT_TLS_CLIENT_KEY", tls.key)
    ClusterCalls([server], 3).places()


def refusal(
    way: Callable[[str, weft.Tls | None, pytest.MonkeyPatch], None], server: str,
    tls: weft.Tls | None, monkeypatch: pytest.MonkeyPatch,
) -> WeftError:  # fmt: skip
    with pytest.raises(WeftError) as raised:
        way(server, tls, monkeypatch)
    return raised.value


@pytest.mark.parametrize("way", [connect, cluster_status])
def test_every_tls_mistake_is_named(
    files: Files, way: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, ca = files.good, files.ca()
    stranger = str(files.other / "client-stranger.pem"), str(files.other / "client-stranger.key")
    known = str(good / "client-known.pem"), str(good / "client-known.key")
    mutual = good / "ca.pem"
    cases: list[tuple[Path | None, str, Path | None, weft.Tls | None, str]] = [
        (good, HOST, None, None, "is encrypted with TLS, and this client is not set to use TLS"),
        (None, HOST, None, weft.Tls(ca), "is not encrypted, and this client is set to use TLS"),
        (files.other, HOST, None, weft.Tls(ca), "certificate is not signed by"),
        (good, HOST, None, weft.Tls(), "not signed by an authority that this system knows"),
        (good, "elsewhere.example", None, weft.Tls(ca), f"certificate is not for '{HOST}'"),
        (files.late, HOST, None, weft.Tls(ca), "has expired"),
        (good, HOST, mutual, weft.Tls(ca), "demands a client certificate"),
    ]
    for folder, host, client_ca, tls, words in cases:
        with served(folder, host, client_ca) as server, monkeypatch.context() as patch:
            error = refusal(way, server, tls, patch)
            assert isinstance(error, TlsError), (words, error)
            assert words in error.message
            assert server in error.message
            assert (error.code, error.retriable) == ("TLS", False)
    with served(good, HOST, mutual) as server, monkeypatch.context() as patch:
        error = refusal(way, server, weft.Tls(ca, *stranger), patch)
        assert "refuses the client certificate" in error.message
    with served(good, HOST, mutual) as server, monkeypatch.context() as patch:
        # The right certificate gets through TLS, to a server that is no node.
        error = refusal(way, server, weft.Tls(ca, *known), patch)
        assert isinstance(error, ProtocolError)


async def test_the_async_client_names_them_too(files: Files) -> None:
    with served(files.good) as server, pytest.raises(TlsError, match="is not set to use TLS"):
        await weft.aio.connect(server, tls=False, connect_timeout_ms=3000)


def test_one_good_seed_is_enough(files: Files) -> None:
    """A mistake at one seed counts only when no other answers."""
    with served(files.good) as secure, served(None) as plain:
        with pytest.raises(ProtocolError, match=plain):
            weft.connect([plain, secure], tls=False, connect_timeout_ms=1000)
        with pytest.raises(TlsError, match=secure):
            weft.connect([f"{HOST}:1", secure], tls=False, connect_timeout_ms=1000)


def test_a_node_that_joins_names_them_at_once(files: Files) -> None:
    pair: dict[str, Any] = {
        "tls_cert": str(files.good / f"{HOST}.pem"),
        "tls_key": str(files.good / f"{HOST}.key"),
    }
    trusting: dict[str, Any] = {**pair, "tls_trust_ca": files.ca()}
    cases: list[tuple[Path | None, dict[str, Any], str]] = [
        (files.good, {}, "--tls-trust-ca"),
        (None, trusting, "is not encrypted"),
        (files.good, pair, "not signed by an authority that this system knows"),
        (files.other, trusting, "is not signed by"),
    ]
    for folder, settings, words in cases:
        with served(folder) as server:
            config = Config(join=server, **settings)
            seeds = Seeds([Address.parse(server, "join")], Introduction(config))
            with pytest.raises(TlsError, match=words):
                seeds.await_view(60, lambda seconds: pytest.fail("it waits for a mistake to pass"))
    with served(files.good, client_ca=files.good / "ca.pem") as server:
        # A node presents its own certificate where clients must have one.
        seeds = Seeds([Address.parse(server, "join")], Introduction(Config(**trusting)))
        with pytest.raises(ProtocolError):
            seeds.view()


def test_the_doctor_says_what_to_do(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(files.good) as server:
        finding = check_health(server)
        assert (finding.level, "is not set to use TLS" in finding.found) == ("FAIL", True)
        assert "weft tls init" in finding.advice


class _Web(BaseHTTPRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def speaking(first: bytes) -> Iterator[str]:
    """A server that sends a greeting on every connection and then only receives."""
    with socket.create_server((HOST, 0)) as listening:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    made = listening.accept()[0]
                except OSError:
                    return
                held.append(made)
                made.sendall(first)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"{HOST}:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in held:
                each.close()


def test_other_ports_and_programs_are_named(files: Files) -> None:
    with HTTPServer((HOST, 0), _Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        server = f"{HOST}:{web.server_port}"
        for tls in (None, weft.Tls(files.ca())):
            with pytest.raises(ProtocolError, match="an HTTP/1 server"):
                weft.connect(server, tls=tls or False, connect_timeout_ms=1000)
        web.shutdown()
    with speaking(b"\xff\0\0\0\0\0\0\0\x01\x7f") as server:
        for tls in (None, weft.Tls(files.ca())):
            with pytest.raises(ProtocolError, match="a ZeroMQ port"):
                weft.connect(server, tls=tls or False, connect_timeout_ms=1000)


def test_what_may_pass_stays_retriable_and_is_named() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        refused = f"{HOST}:{unused.getsockname()[1]}"
        for server, words in (
            (refused, "connection refused: nothing listens on this port"),
            ("nowhere.invalid:7700", "the host name does not resolve"),
        ):
            with pytest.raises(ConnectionLost, match=words) as raised:
                weft.connect(server, connect_timeout_ms=300)
            assert raised.value.retriable


def test_a_file_that_is_no_certificate_is_named(files: Files, tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("hello")
    with served(files.good) as server, pytest.raises(InvalidArgument, match=r"text\.pem"):
        weft.connect(server, tls=str(tmp_path / "text.pem"), connect_timeout_ms=1000)
