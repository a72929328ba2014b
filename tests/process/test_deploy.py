"""The parts of the compose file, run here without an engine: probe, process 1, demo, scrape."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.process.live_node import LiveNode
from weft.node_process import unused_ports
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process

DOCKER = Path(__file__).resolve().parents[2] / "docker"
#: A new process namespace; all its processes end with the first one.
AS_PROCESS_1 = ["unshare", "--pid", "--fork", "--kill-child"]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(data=tmp_path, durability="os") as running:
        yield running


def http_of(made: Cluster) -> str:
    return str(json.loads((made.node(0).data / "address.json").read_text())["http"])


def probe(url: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(DOCKER / "probe.py"), url],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "http_proxy": "http://127.0.0.1:9"},  # a probe must ignore it
    )
    return done.returncode, done.stdout.strip()


def test_the_probe_tells_a_node_that_serves_from_one_that_does_not(made: Cluster) -> None:
    address = http_of(made)
    assert probe(f"http://{address}/readyz") == (0, "serving")
    assert probe(f"http://{address}/nothing") == (1, "404 Not Found")
    made.kill(0)
    code, said = probe(f"http://{address}/readyz")
    assert code == 1
    assert "refused" in said


def test_a_paused_node_is_not_healthy(made: Cluster) -> None:
    address = http_of(made)
    made.pause(0)
    code, _ = probe(f"http://{address}/healthz")
    made.resume(0)
    assert code == 1
    assert probe(f"http://{address}/healthz") == (0, "serving")


def test_a_full_disk_is_alive_and_not_ready(tmp_path: Path) -> None:
    with LiveNode(tmp_path / "node", reserve_bytes=1 << 49).start() as node:
        address = json.loads((node.data / "address.json").read_text())["http"]
        assert probe(f"http://{address}/healthz") == (0, "serving")
        code, said = probe(f"http://{address}/readyz")
        assert (code, said.startswith("503 the disk is at its reserve")) == (1, True)


def test_as_process_1_it_stops_cleanly_on_sigterm(tmp_path: Path) -> None:
    """As in a container, where the kernel drops signals that process 1 does not handle."""
    if subprocess.run([*AS_PROCESS_1, "true"], capture_output=True, check=False).returncode:
        pytest.skip("process namespaces cannot be made here")
    serve = [sys.executable, "-m", "weft.client.cli.main", "serve"]
    environment = {
        **os.environ,
        "WEFT_DATA": str(tmp_path / "data"),
        "WEFT_LISTEN": "127.0.0.1:0",
        "WEFT_LOG_FORMAT": "json",
    }
    with subprocess.Popen(
        [*AS_PROCESS_1, *serve], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        lines = (json.loads(line) for line in process.stderr)
        serving = next(line for line in lines if line["message"] == "serving")
        assert serving["data"] == str(tmp_path / "data")
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        assert [line["message"] for line in lines][-1] == "stopped"
        assert process.wait(100) == 0


def demo(name: str, servers: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DOCKER / "demo" / name)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "WEFT_SERVERS": servers, **environment},
    )


def test_the_demo_produces_consumes_and_stops(made: Cluster) -> None:
    (servers,) = made.servers
    consumer = demo("consume.py", servers, DEMO_BAD_EVERY="100")
    producer = demo("produce.py", servers, DEMO_RATE="500")
    try:
        client, end = made.client(), time.monotonic() + 200
        while True:
            stats = {queue.name: queue for queue in client.list_queues()}
            if stats and stats["orders"].acked > 500 and stats["orders.dead"].ready > 1:
                break
            assert time.monotonic() < end, stats
            time.sleep(0.1)
        for process, word in ((producer, "sent"), (consumer, "acked")):
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=100)
            assert process.returncode == 0
            assert said.startswith(word)
    finally:
        for process in (producer, consumer):
            process.kill()
            process.wait()


def test_a_password_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "grafana_admin"
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(DOCKER / "make_secret.py"), str(path)],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        said.append((done.stdout.split(": ")[1].strip(), path.read_text()))
    (first, password), (second, same) = said
    assert (first, second) == ("made", "was there")
    assert password == same
    assert len(password) >= 32
    assert password not in "".join(word for word, _ in said)


def test_prometheus_scrapes_a_node_and_reads_the_rules(made: Cluster, tmp_path: Path) -> None:
    """With the compose file's own configuration; only the addresses differ."""
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed")
    config: dict[str, Any] = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DOCKER / "prometheus/rules.yml")]
    config["scrape_configs"] = config["scrape_configs"][:1]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [http_of(made)]}]
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    client = made.client()
    client.create_queue("orders")
    client.queue("orders").push_many([b"x"] * 7)
    (port,) = unused_ports(1)
    process = subprocess.Popen(
        [
            prometheus,
            f"--config.file={file}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 200
        query = 'sum(weft_pushed_messages_total{queue="orders"})'
        while (value := _ask(port, "query", query)) != "7":
            assert time.monotonic() < end, value
            time.sleep(0.3)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=10) as told:
            groups = json.load(told)["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) >= 16
        assert not [rule["name"] for rule in rules if rule.get("lastError")]
    finally:
        process.terminate()
        process.wait(100)


def _ask(port: int, verb: str, query: str) -> str | None:
    asked = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{verb}?{asked}") as told:
            result = json.load(told)["data"]["result"]
    except OSError:
        return None  # still starting
    return str(result[0]["value"][1]) if result else None
