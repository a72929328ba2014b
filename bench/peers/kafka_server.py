"""Kafka without ZooKeeper (KRaft): one combined node or three, started from Kafka's jars."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Final

from . import fetch
from .process import HOST, ServerProcess, answers, free_ports
from .server import Server

_HEAP: Final = "1g"
#: Maximum message size: workload W4 sends 1 MiB.
_MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
_FORMAT_S_MAX: Final = 120

_CONFIG: Final = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=1
default.replication.factor={replicas}
min.insync.replicas={insync}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={insync}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={insync}
message.max.bytes={message}
replica.fetch.max.bytes={message}
group.initial.rebalance.delay.ms=0
"""


class KafkaServer(Server):
    settings = (
        "KRaft, combined node, heap 1 GiB, group.initial.rebalance.delay.ms 0, message.max.bytes "
        "8 MiB, no forced fsync (its default)"
    )

    def start(self) -> None:
        count = self.nodes
        ports, controllers = free_ports(count), free_ports(count)
        voters = ",".join(f"{i + 1}@{HOST}:{port}" for i, port in enumerate(controllers))
        # The first byte is zero: an id that begins with a dash would be parsed as an option.
        cluster = base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode().rstrip("=")
        for number in range(count):
            config = self.folder / f"kafka{number}.properties"
            text = _CONFIG.format(
                number=number + 1,
                voters=voters,
                host=HOST,
                port=ports[number],
                controller=controllers[number],
                data=self.folder / f"data{number}",
                replicas=count,
                insync=min(count, 2),
                message=_MESSAGE_BYTES_MAX,
            )
            config.write_text(text)
            self._format(config, cluster)
            java = ["java", f"-Xms{_HEAP}", f"-Xmx{_HEAP}", "-XX:+UseG1GC", "-cp", _class_path()]
            command = [*java, "kafka.Kafka", str(config)]
            self.processes.append(ServerProcess(f"kafka{number}", command, self.folder))
        for process, port in zip(self.processes, ports, strict=True):
            process.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
        servers = ",".join(f"{HOST}:{port}" for port in ports)
        self.address = {"servers": servers, "replicas": count}

    def _format(self, config: Path, cluster: str) -> None:
        tool = ["java", "-cp", _class_path(), "kafka.tools.StorageTool", "format"]
        subprocess.run(
            [*tool, "-t", cluster, "-c", str(config)],
            check=True,
            capture_output=True,
            timeout=_FORMAT_S_MAX,
        )

    def version(self) -> str:
        return f"Kafka {fetch.KAFKA_VERSION}"


class KafkaCluster(KafkaServer):
    nodes = 3
    settings = KafkaServer.settings + ", three nodes, replication 3, min.insync.replicas 2"


def _class_path() -> str:
    return f"{fetch.kafka_jars()}/*"
