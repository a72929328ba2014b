"""The table of docs/cluster.md: each tool's output for 1, 2, 3 and 5 nodes as they die one by one.

The document is the expectation: the test reads its table and kills real nodes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import yaml
from click.testing import CliRunner

import weft
from tests.contract.served import eventually
from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import ClusterHealth
from weft.client.cli.main import cli
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
HEADING = "| nodes | dead |"
#: Enough to reach partitions that are served and others that are not.
PUSHES = 24
PUSH_MS = 3_000
#: The only series that the alerts on the cluster use.
SERIES = re.compile(
    r"^(weft_(?:blocked_partitions|cluster_state|under_replicated_partitions|view_version))"
    r"(\{[^}]*\})? (\S+)$",
    re.MULTILINE,
)


class Row(NamedTuple):
    """One row of the table; cells in its order."""

    nodes: str
    dead: str
    status: str
    may_fail: str
    doctor: str
    readyz: str
    alerts: str
    push: str


def documented() -> dict[tuple[int, int], Row]:
    text = (ROOT / "docs/cluster.md").read_text()
    table = text[text.index(HEADING) :].split("\n\n")[0].splitlines()[2:]
    rows = [
        Row(*(cell.strip().strip("`") for cell in line.strip("|").split("|"))) for line in table
    ]
    return {(int(row.nodes), int(row.dead)): row for row in rows}


def test_the_table_has_every_number_of_dead_nodes() -> None:
    assert list(documented()) == [(n, dead) for n in (1, 2, 3, 5) for dead in range(n + 1)]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_what_each_tool_says_is_in_the_document(nodes: int, tmp_path: Path) -> None:
    expected = documented()
    alerts: list[dict[str, Any]] = []
    with cluster(nodes, durability="os") as made:
        made.settled()
        with weft.connect(made.servers) as client:
            client.create_queue("jobs")
        ports = [_http_of(made, number) for number in range(nodes)]
        for dead in range(nodes + 1):
            if dead:
                made.kill(nodes - dead)
            if 0 < dead < nodes:
                _await(made, expected[nodes, dead].status)
            row = Row(
                str(nodes), str(dead), *_status(made), _doctor(made), _readyz(ports[0]),
                expected[nodes, dead].alerts, _push(made),
            )  # fmt: skip
            assert row == expected[nodes, dead]
            if dead < nodes:
                _check_sums(made, {made.node(nodes - n).id for n in range(1, dead + 1)}, row)
            alerts.append(_alert_test(ports, nodes - dead, row))
    _check_alerts(tmp_path, alerts)


def _http_of(made: Cluster, number: int) -> str:
    return str(json.loads((made.node(number).data / "address.json").read_text())["http"])


def _await(made: Cluster, state: str) -> None:
    """Wait until the survivors have recovered as far as possible, or know that they cannot."""
    if state != "unavailable":
        made.recovered()
        return
    calls = ClusterCalls([made.node(0).grpc])
    eventually(lambda: bool(ClusterHealth.of(calls.places()).verdict.blocked))
    address = _http_of(made, 0)
    eventually(lambda: _readyz(address) != "200")


def _weft(made: Cluster, *words: str) -> tuple[int, Any]:
    told = CliRunner().invoke(cli, ["-s", made.node(0).grpc, *words, "--json"])
    return told.exit_code, json.loads(told.stdout) if told.stdout else None


def _status(made: Cluster) -> tuple[str, str]:
    code, told = _weft(made, "cluster", "status")
    if code:
        return "exit code 1", "-"
    verdict = told["verdict"]
    assert verdict["reasons"] or verdict["state"] == "settled"
    keeps = [verdict[f"can_lose_without_losing_{what}"] for what in ("service", "messages")]
    return verdict["state"], f"{keeps[0]} / {keeps[1]}"


def _doctor(made: Cluster) -> str:
    code, findings = _weft(made, "doctor")
    levels = {each["check"].split()[-1]: each["level"] for each in findings}
    level = levels.get("cluster", levels["gRPC"])
    assert (level == "FAIL") == bool(code), "durability os is a warning, and nothing else fails"
    return str(level)


def _readyz(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=10) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        said = error.read().decode()
        return str(error.code) if "quorum lost" in said else said
    except OSError:
        return "no answer"


def _push(made: Cluster) -> str:
    """The outcome of pushes by a client that starts now."""

    def one(client: weft.Client) -> str:
        try:
            client.queue("jobs").push(b"x", timeout_ms=PUSH_MS)
            return "stored"
        except weft.WeftError as error:
            explained = error.code != "UNAVAILABLE" or "quorum lost" in error.message
            return error.code if explained and error.retriable else repr(error)

    try:
        with (
            weft.connect(made.servers, timeout_ms=PUSH_MS) as client,
            ThreadPoolExecutor(PUSHES) as pool,
        ):
            said = set(pool.map(one, [client] * PUSHES))
    except weft.WeftError as error:
        said = {error.code}
    return " or ".join(sorted(said))


def _check_sums(made: Cluster, dead: set[str], row: Row) -> None:
    """Sums over a queue are marked partial, with the missing nodes, exactly when they are."""
    code, (listed,) = _weft(made, "queue", "list")
    with grpc.insecure_channel(made.node(0).grpc) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        told = stub.DescribeQueue(pb.DescribeQueueRequest(queue="jobs"), timeout=10)
    assert (code, listed["missing_nodes"]) == (0, list(told.missing_nodes))
    partial = row.status == "unavailable"
    assert listed["partial"] == partial == bool(told.uncounted_partitions)
    assert bool(listed["missing_nodes"]) == partial
    assert set(listed["missing_nodes"]) <= dead


def _alert_test(ports: list[str], living: int, row: Row) -> dict[str, Any]:
    """The present metrics as a test for promtool: which page alerts fire on them."""
    series = {}
    for number, address in enumerate(ports):
        alive = number < living
        series[f'up{{job="weft", instance="{number}"}}'] = f"{int(alive)}x20"
        if alive:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            for name, labels, value in SERIES.findall(text):
                own = f'instance="{number}"' + (f", {labels[1:-1]}" if labels else "")
                series[f"{name}{{{own}}}"] = f"{float(value):g}x20"
    names = [] if row.alerts == "-" else row.alerts.split(", ")
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing", severity="page"})',
                "eval_time": "15m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)
                ],
            }
        ],
    }


def _check_alerts(folder: Path, tests: list[dict[str, Any]]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        return  # the other columns are checked without it
    file = folder / "alerts.yml"
    rules = str(ROOT / "docker/prometheus/rules.yml")
    file.write_text(
        yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
