"""NATS with JetStream on files: one node, or three that replicate."""

from __future__ import annotations

import json
import urllib.request
from typing import Final

from . import fetch
from .process import HOST, ServerProcess, answers, free_ports
from .server import Server, said_by

#: Maximum payload: workload W4 sends 1 MiB, and JetStream adds headers.
_PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024

_CONFIG: Final = """\
server_name: n{number}
host: "{host}"
port: {port}
http: "{host}:{monitor}"
max_payload: {payload}
jetstream {{ store_dir: "{store}" }}
"""
_CLUSTER: Final = """\
cluster {{ name: bench, host: "{host}", port: {route}, routes: [{routes}] }}
"""


class NatsServer(Server):
    settings = "JetStream file storage, sync_interval 2 min (its default), max_payload 8 MiB"

    def start(self) -> None:
        count = self.nodes
        ports, routes, monitors = free_ports(count), free_ports(count), free_ports(count)
        joined = ", ".join(f'"nats://{HOST}:{route}"' for route in routes)
        for number in range(count):
            text = _CONFIG.format(
                number=number,
                host=HOST,
                port=ports[number],
                monitor=monitors[number],
                payload=_PAYLOAD_BYTES_MAX,
                store=self.folder / f"store{number}",
            )
            if count > 1:
                text += _CLUSTER.format(host=HOST, route=routes[number], routes=joined)
            config = self.folder / f"n{number}.conf"
            config.write_text(text)
            command = [fetch.nats_server(), "-c", str(config)]
            self.processes.append(ServerProcess(f"nats{number}", command, self.folder))
        for process, port, monitor in zip(self.processes, ports, monitors, strict=True):
            process.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
            process.wait_until(lambda at=monitor: _healthy(at))  # type: ignore[misc]
        self.address = {"servers": [f"nats://{HOST}:{port}" for port in ports], "replicas": count}

    def version(self) -> str:
        return said_by(fetch.nats_server(), "--version")


class NatsCluster(NatsServer):
    nodes = 3
    settings = NatsServer.settings + ", three nodes, streams with R3"


def _healthy(monitor: int) -> bool:
    """True if JetStream has an elected leader; an open socket alone is not enough."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{monitor}/healthz", timeout=5) as answer:
            return bool(json.load(answer).get("status") == "ok")
    except OSError:
        return False
