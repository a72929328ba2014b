"""etcd on one node or three, as its packages start it, with a larger limit for transactions."""

from __future__ import annotations

from typing import ClassVar, Final

from bench.peers.process import HOST, ServerProcess, answers, free_ports
from bench.peers.server import Server, said_by

#: Operations of one transaction: `insert_many` and `lookup_many` are transactions of 1,000.
TXN_OPERATIONS_MAX: Final = 10_000


class EtcdServer(Server):
    members: ClassVar[int] = 1
    settings = f"--max-txn-ops {TXN_OPERATIONS_MAX}; every write is fsynced (its default)"

    def start(self) -> None:
        names = [f"etcd{number}" for number in range(self.members)]
        ports = free_ports(2 * self.members)
        clients, peers = ports[: self.members], ports[self.members :]
        cluster = ",".join(f"{n}=http://{HOST}:{p}" for n, p in zip(names, peers, strict=True))
        for name, client, peer in zip(names, clients, peers, strict=True):
            client_url, peer_url = f"http://{HOST}:{client}", f"http://{HOST}:{peer}"
            command = [
                *("etcd", "--name", name, "--data-dir", str(self.folder / name)),
                *("--listen-client-urls", client_url, "--advertise-client-urls", client_url),
                *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
                *("--initial-cluster", cluster, "--max-txn-ops", str(TXN_OPERATIONS_MAX)),
                *("--logger", "zap", "--log-level", "error"),
            ]
            self.processes.append(ServerProcess(name, command, self.folder))
        for process, port in zip(self.processes, clients, strict=True):
            process.wait_until(lambda port=port: answers(port))  # type: ignore[misc]
        self.address = {"target": f"{HOST}:{clients[0]}"}

    def version(self) -> str:
        return said_by("etcd", "--version").replace(" Version:", "")


class EtcdCluster(EtcdServer):
    members = 3
    nodes = 3
