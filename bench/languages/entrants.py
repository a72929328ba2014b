"""The compared pairs of a server and a client program.

The servers are those of `bench.peers`. Every client is the fastest documented way of its library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from bench.peers import fetch, systems
from bench.peers.process import ServerProcess
from bench.peers.server import Server
from bench.peers.systems import System

from . import programs


@dataclass(frozen=True)
class Entrant:
    name: str
    #: The server with its settings.
    system: System
    #: The language of the client program: go, node, java or python.
    language: str
    #: The broker's name in a task.
    broker: str
    #: What is compared, for the report.
    client: str


class GoGrpcServer(Server):
    """Go's own gRPC server with a health service and a view of one node."""

    settings = "grpc-go's server, default options"

    def start(self) -> None:
        process = ServerProcess("go-grpc", [*programs.command("go"), "serve"], self.folder)
        self.processes.append(process)
        log = self.folder / "go-grpc.log"
        process.wait_until(lambda: log.read_text().endswith("\n"))
        self.address = {"servers": [json.loads(log.read_text())["address"]]}

    def version(self) -> str:
        return "grpc-go 1.85.0"


def _go(may_fetch: bool) -> None:
    """Does nothing: the driver builds the Go program, which is the server, too."""


_GO_GRPC: Final = System(
    "go-grpc", GoGrpcServer, ("", ""), (), False, "stores nothing", "", _go, special=True
)
_BY_GO: Final = {
    "weft-disk": ("weft", "grpc-go; 8 pushes and 8 pops of 1,000 under way"),
    "weft-os": ("weft", "grpc-go; 8 pushes and 8 pops of 1,000 under way"),
    "nats": (
        "nats",
        "nats.go; single: Publish, Consume, DoubleAck; batches: PublishAsync with 4,000 "
        "unconfirmed, Consume, AckPolicy all",
    ),
    "redis-streams": (
        "redis",
        "go-redis; batches: 8 pipelines of 1,000 XADDs, 8 XREADGROUPs of 1,000 and their XACKs",
    ),
    "redis-streams-always": ("redis", "as redis-streams"),
    "rabbitmq-classic": (
        "rabbitmq-classic",
        "amqp091-go; confirms, prefetch 1,000; batches: 2,500 unconfirmed, an ack for 200",
    ),
    "rabbitmq-quorum": ("rabbitmq-quorum", "as rabbitmq-classic"),
}


def _all() -> list[Entrant]:
    found = [
        Entrant(name, systems.BY_NAME[name], "go", broker, client)
        for name, (broker, client) in _BY_GO.items()
    ]
    found.append(Entrant("go-grpc", _GO_GRPC, "go", "weft", "grpc-go"))
    clients = {"node": "@grpc/grpc-js", "java": "grpc-java", "python": "the Python client"}
    for name in ("weft-disk", "weft-os"):
        for language, client in clients.items():
            system = systems.BY_NAME[name]
            found.append(Entrant(f"{name}-{language}", system, language, "weft", client))
    return found


ALL: Final = tuple(_all())
BY_NAME: Final = {each.name: each for each in ALL}
GO: Final = tuple(_BY_GO)
WEFT: Final = ("weft-disk", "weft-os")


def address_of(entrant: Entrant, server: Server) -> str:
    """The server's address in the form that the client libraries take."""
    at = server.address
    if entrant.broker == "redis":
        return f"{at['host']}:{at['port']}"
    if entrant.broker.startswith("rabbitmq"):
        return f"amqp://guest:guest@{at['host']}:{at['ports'][0]}/"
    return str(at["servers"][0])


def fetched(entrant: Entrant, *, may_fetch: bool) -> None:
    """Provides the server's program and the client's; raises fetch.Missing."""
    entrant.system.fetch(may_fetch)
    try:
        programs.command(entrant.language)
    except programs.Missing as error:
        raise fetch.Missing(f"the client in {entrant.language}: {error}") from None
