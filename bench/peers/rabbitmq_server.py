"""RabbitMQ: one node, or three. Each run has a separate port mapper, cookie and data folder.

Erlang would start a port mapper (epmd) as a daemon that outlives the run. Therefore the run starts
epmd in the foreground, on a separate port, and stops it like any other process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .process import HOST, ServerProcess, answers, free_ports
from .server import Server, said_by

#: Debian's start script changes to another user without write access to the run's folder.
_SCRIPT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_COOKIE: Final = "weft-bench"


class RabbitServer(Server):
    settings = "durable queues, persistent messages, everything else by default"

    def start(self) -> None:
        (mapper,) = free_ports(1)
        ports, links = free_ports(self.nodes), free_ports(self.nodes)
        names = [f"bench{port}@localhost" for port in ports]
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(_COOKIE)
        cookie.chmod(0o400)
        epmd = ["epmd", "-port", str(mapper), "-address", HOST]
        self.processes.append(ServerProcess("epmd", epmd, self.folder))
        self.processes[0].wait_until(lambda: answers(mapper))
        for name, port, link in zip(names, ports, links, strict=True):
            self._start_node(name, port, link, mapper, names)
        for process, port in zip(self.processes[1:], ports, strict=True):
            process.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
        self.address = {"host": HOST, "ports": ports, "replicas": self.nodes}

    def _start_node(self, name: str, port: int, link: int, mapper: int, names: list[str]) -> None:
        folder = self.folder / name.partition("@")[0]
        folder.mkdir()
        lines = [f"listeners.tcp.1 = {HOST}:{port}", "log.file.level = warning"]
        if self.nodes > 1:
            lines.append("cluster_formation.peer_discovery_backend = classic_config")
            for number, other in enumerate(names, 1):
                lines.append(f"cluster_formation.classic_config.nodes.{number} = {other}")
        config = folder / "rabbitmq.conf"
        config.write_text("\n".join(lines) + "\n")
        plugins = folder / "enabled_plugins"
        plugins.write_text("[].\n")
        environment = {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(link),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RUNNING_UNDER_SYSTEMD": "true",  # Makes the script exec Erlang and keep the pid.
        }
        self.processes.append(
            ServerProcess(name.partition("@")[0], [str(_SCRIPT)], folder, environment)
        )

    def version(self) -> str:
        return "RabbitMQ " + said_by("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server")


class RabbitCluster(RabbitServer):
    nodes = 3
    settings = "durable quorum queues on three nodes, everything else by default"
