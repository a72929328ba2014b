"""The compose file's cluster without a container engine: each service in a network namespace.

Command, environment, names, order and health check are read from docker/compose.yaml and the
Dockerfile; only the image is this environment, and a volume is a folder. Three nodes form a
cluster, the demo's producer and a consumer work beside it, one node is cut off and returns, one is
killed and returns, Prometheus (where installed) scrapes all three, and nothing is lost.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.process.netns import Network, why_not

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DOCKER / "compose.yaml").read_text())[
    "services"
]
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
NODES = ["node-1", "node-2", "node-3"]
#: Like the demo's consumer, and records the received messages.
CONSUME = """
import sys, weft
with weft.connect() as client, open(sys.argv[1], "a", buffering=1) as seen:
    for message in client.queue("orders").consume():
        seen.write(message.body.decode().split()[1] + "\\n")
        message.ack()
"""
#: Service names are host names, as in the engine's own network.
NAMED = ["sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']


class Service:
    """One container's process."""

    def __init__(self, name: str, network: Network, folder: Path) -> None:
        self.name = name
        self.network = network
        self._folder = folder
        self._log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: list[str] | None = None) -> None:
        service = SERVICES[self.name]
        image = dict(re.findall(r"(WEFT_\w+)=(\S+)", DOCKERFILE))
        volume = {"WEFT_DATA": str(self._folder / self.name)}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("WEFT_")}
        environment = {**inherited, **image, **service.get("environment", {}), **volume}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.within(command or self._command(service)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip

    def within(self, command: list[str]) -> list[str]:
        hosts = str(self._folder / "hosts")
        return [*self.network.within(self.name), "unshare", "--mount", *NAMED, hosts, *command]

    def _command(self, service: dict[str, Any]) -> list[str]:
        entrypoint = service.get("entrypoint", ["weft"])
        if entrypoint == ["weft"]:
            return [sys.executable, "-m", "weft.client.cli.main", *service["command"]]
        program, script = entrypoint
        assert program == "python"
        return [sys.executable, str(DOCKER / script.removeprefix("/"))]

    def healthy(self) -> bool:
        """By the image's own health check."""
        found = re.search(r"HEALTHCHECK[^[]*CMD (\[.*7702.*\])", DOCKERFILE)
        assert found
        _, script, url = json.loads(found[1])
        probe = [sys.executable, str(DOCKER / Path(script).name), url]
        return subprocess.run(self.within(probe), capture_output=True, check=False).returncode == 0

    def end(self, number: signal.Signals, seconds: float = 100) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[dict[str, Service]]:
    if why := why_not():
        pytest.skip(why)
    names = [*NODES, "producer", "consumer", "weft", "prometheus"]
    with Network(*names) as network:
        lines = [f"{network.address(name)} {name}\n" for name in names]
        (tmp_path / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        made = {name: Service(name, network, tmp_path) for name in names}
        try:
            yield made
        finally:
            for service in made.values():
                if service.process is not None:
                    service.process.kill()
                    service.process.wait()


def until(check: Callable[[], bool], what: str, services: dict[str, Service]) -> None:
    end = time.monotonic() + 200
    while not check():
        assert time.monotonic() < end, what + "".join(
            f"\n--- {name}\n{services[name].log()}" for name in NODES
        )
        time.sleep(0.3)


def weft(services: dict[str, Service], *words: str) -> Any:
    """The compose file's command line, inside its network."""
    service = services["weft"]
    servers = SERVICES["weft"]["environment"]["WEFT_SERVERS"]
    command = [sys.executable, "-m", "weft.client.cli.main", "--json", "-s", servers, *words]
    done = subprocess.run(
        service.within(command), capture_output=True, text=True, timeout=200, check=False
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def orders(services: dict[str, Service], name: str = "orders") -> dict[str, int]:
    found = weft(services, "queue", "show", name)
    return found or {"acked": 0, "ready": -1, "leased": -1}


def test_the_cluster_of_the_compose_file(services: dict[str, Service], tmp_path: Path) -> None:
    network = services["node-1"].network
    for name in NODES:  # each when those before it are healthy
        for other in SERVICES[name].get("depends_on", {}):
            assert services[other].healthy(), other
        services[name].start()
        until(services[name].healthy, f"{name} is not healthy", services)

    # A node is healthy as soon as it serves; it may still be joining.
    def joined() -> bool:
        status = weft(services, "cluster", "status")
        return status is not None and len(status["nodes"]) == len(NODES)

    until(joined, "not all nodes are members", services)

    scraped = _start_prometheus(services, tmp_path)
    services["producer"].start()
    until(lambda: orders(services)["ready"] > 0, "the demo does not produce", services)
    services["consumer"].start([sys.executable, "-c", CONSUME, str(tmp_path / "seen")])
    until(lambda: orders(services)["acked"] > 500, "the demo does not work", services)

    network.unplug("node-3")  # cut off
    before = orders(services)["acked"]
    until(lambda: orders(services)["acked"] > before + 500, "two of three do not go on", services)
    network.heal()
    until(services["node-3"].healthy, "node-3 does not come back", services)

    services["node-2"].end(signal.SIGKILL)
    before = orders(services)["acked"]
    until(lambda: orders(services)["acked"] > before + 500, "two of three do not go on", services)
    services["node-2"].start()
    until(services["node-2"].healthy, "node-2 does not come back", services)
    if scraped:
        until(lambda: _up(services) == 3, "Prometheus does not see three nodes", services)

    assert services["producer"].end(signal.SIGTERM) == 0
    sent = int(re.findall(r"sent (\d+) orders", services["producer"].log())[-1])
    until(
        lambda: orders(services)["ready"] == orders(services)["leased"] == 0,
        "the consumer does not finish",
        services,
    )
    services["consumer"].end(signal.SIGTERM)
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    print(f"sent {sent}, delivered {len(seen)}, {len(seen) - len(set(seen))} of them again")
    assert set(seen) == set(range(sent))
    for name in reversed(NODES):
        assert services[name].end(signal.SIGTERM) == 0, services[name].log()


def _start_prometheus(services: dict[str, Service], folder: Path) -> bool:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        return False  # the rest of the test works without it
    services["prometheus"].start(
        [
            prometheus,
            f"--config.file={DOCKER / 'prometheus/prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
        ]
    )
    return True


def _up(services: dict[str, Service]) -> int:
    program = (
        "import json, urllib.request as u; "
        "print(u.urlopen('http://127.0.0.1:9090/api/v1/query?query=sum(up{job=%22weft%22})')"
        ".read().decode())"
    )
    done = subprocess.run(
        services["prometheus"].within([sys.executable, "-c", program]),
        capture_output=True,
        text=True,
        check=False,
    )
    result = json.loads(done.stdout)["data"]["result"] if done.returncode == 0 else []
    return int(result[0]["value"][1]) if result else 0
