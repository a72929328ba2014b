"""The deployment files: read by their real parsers, and consistent with the code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from weft import __version__
from weft.server import serve_command as server_command
from weft.server.config import FIELDS, environment_name, load
from weft.server.observability.metrics import EXPOSED, FAMILIES

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
PROMETHEUS = DOCKER / "prometheus"
MONITORING = ROOT / "docs" / "how-to" / "monitor.md"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODES = ["node-1", "node-2", "node-3"]
RULES = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana/dashboards/weft.json").read_text())


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*words: str, **options: Any) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- their own parsers ------------------------------------------------------------------------


def test_compose_schema() -> None:
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "docker/compose.yaml")


def test_the_schema_check_can_fail(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text("services: {a: {image: x, memory_limt: 5}}\n")
    words = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(wrong)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode
    assert "memory_limt" in done.stdout


def test_docker_compose_reads_it() -> None:
    docker = tool("docker")
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker has no compose plugin here")
    run(docker, "compose", "-f", "docker/compose.yaml", "--profile", "demo", "config", "--quiet")


def test_the_dockerfile_lints() -> None:
    run(tool("hadolint"), "--failure-threshold", "info", "docker/Dockerfile")


def test_promtool_reads_config_and_rules() -> None:
    promtool = tool("promtool")
    run(promtool, "check", "config", "docker/prometheus/prometheus.yml")
    run(promtool, "test", "rules", "docker/prometheus/rules_test.yml")


# --- the image --------------------------------------------------------------------------------


def dockerfile() -> str:
    return (DOCKER / "Dockerfile").read_text()


def test_what_runs_is_not_root_and_is_told_to_stop_politely() -> None:
    stages = re.split(r"^FROM ", dockerfile(), flags=re.MULTILINE)[1:]
    by_name = {stage.split()[2]: stage for stage in stages}
    for name in ("node", "spark"):
        users = re.findall(r"^USER (\S+)", by_name[name], flags=re.MULTILINE)
        assert users[-1] == "10001:10001", name
        assert re.search(r'^ENTRYPOINT \["', by_name[name], flags=re.MULTILINE), "a shell eats TERM"
        assert "HEALTHCHECK" in by_name[name]
    assert "STOPSIGNAL SIGTERM" in by_name["node"]


def test_base_images_are_pinned() -> None:
    named = re.search(r"^ARG PYTHON=(\S+)", dockerfile(), flags=re.MULTILINE)
    assert named
    assert re.fullmatch(r"3\.1[12]\.\d+-slim-\w+", named[1])
    for base in re.findall(r"^FROM (\S+)", dockerfile(), flags=re.MULTILINE):
        assert base in ("python:${PYTHON}", "node", "build"), base


def constraints() -> dict[str, str]:
    lines = (DOCKER / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_requirement_has_one_version_and_it_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = constraints()
    wanted = [*project["dependencies"], *project["optional-dependencies"]["server"]]
    for requirement in map(Requirement, wanted):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_the_build_sees_every_package_and_file_that_it_copies() -> None:
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    mapped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-dir"
    ]
    assert {folder.split("/")[0] for folder in mapped.values()} <= let_in
    for name in let_in:
        assert (ROOT / name).exists(), name
    for name in re.findall(r"docker/\w+\.\w+", dockerfile().partition("COPY . .")[2]):
        assert name in let_in or name == "docker/Dockerfile", name


# --- the services -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_confined_and_ordered(name: str) -> None:
    service = SERVICES[name]
    image, _, tag = service["image"].rpartition(":")
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), "an image has a version, never latest"
    if image.startswith("weft-"):
        assert tag == __version__
        assert service["build"]["dockerfile"] == "docker/Dockerfile"
        assert f" AS {service['build']['target']}\n" in dockerfile()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "privileged" not in service
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:"), "published to this machine only"
    for other, how in service.get("depends_on", {}).items():
        checked = "healthcheck" in SERVICES[other] or SERVICES[other]["image"].startswith("weft-")
        assert how["condition"] != "service_healthy" or checked


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_are_declared_or_there(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        there = (DOCKER / source).exists() if source.startswith(".") else source
        assert there if source.startswith(".") else source in COMPOSE["volumes"], volume


def test_no_secret_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|SECRET|KEY", key):
                assert key.endswith("__FILE"), f"{name}: {key}"
                assert value.startswith("/var/lib/secrets/")


def test_the_first_node_founds_and_the_others_join_after_it() -> None:
    assert SERVICES["node-1"]["command"] == ["serve"]
    for name in NODES[1:]:
        assert SERVICES[name]["command"][:2] == ["serve", "--join"]
        seeds = SERVICES[name]["command"][2].split(",")
        assert set(seeds) == {f"{other}:7700" for other in NODES if other != name}
        assert SERVICES[name]["depends_on"]["node-1"] == {"condition": "service_healthy"}
    assert len({volume for name in NODES for volume in SERVICES[name]["volumes"]}) == 3


@pytest.mark.parametrize("name", NODES)
def test_a_nodes_settings_are_settings(name: str) -> None:
    service = SERVICES[name]
    image = dict(re.findall(r"(WEFT_\w+)=(\S+)", dockerfile()))
    environment = {**image, **service["environment"]}
    assert set(environment) <= {environment_name(field) for field in FIELDS}
    config = load({}, environment)
    assert (config.data, config.advertise) == ("/var/lib/weft", name)
    assert config.data == service["volumes"][0].split(":")[1]
    assert config.http_address.port == 7702
    assert config.grace_ms < 1000 * int(service["stop_grace_period"].removesuffix("s"))
    told = CliRunner().invoke(server_command.serve, [*service["command"][1:], "--help"])
    assert told.exit_code == 0, told.output


def test_prometheus_scrapes_every_node_and_grafana_asks_prometheus() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert jobs["weft"]["static_configs"][0]["targets"] == [f"{name}:7702" for name in NODES]
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/weft.yaml").read_text())
    (prometheus,) = source["datasources"]
    assert prometheus["url"] == "http://prometheus:9090"
    assert prometheus["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    provider = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/weft.yaml").read_text())
    (dashboards,) = provider["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert dashboards["options"]["path"] in mounted


# --- queries ----------------------------------------------------------------------------------

_WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "bool", "offset"}


def metric_names(query: str) -> set[str]:
    """The metrics in a query: the words left when all other parts of PromQL are removed."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", query)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    words = re.findall(r"\b([A-Za-z_:][\w:]*)\b(?!\s*\()", bare)
    return {word for word in words if word not in _WORDS}


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    for variable in DASHBOARD["templating"]["list"]:
        asked = re.fullmatch(r"label_values\((.*), \w+\)", variable["definition"])
        assert asked
        yield asked[1]


def test_metric_names_are_found_in_a_query() -> None:
    query = """histogram_quantile(0.99, sum by (instance, le) (rate(a_bucket{x=~"b c|d"}[5m])))
        > 0.05 * max(e{f="g"}) unless on (h) k offset 5m"""
    assert metric_names(query) == {"a_bucket", "e", "k"}


def test_dashboards_and_rules_name_only_what_exists() -> None:
    known = EXPOSED | {"up"}
    for query in [*dashboard_queries(), *(rule["expr"] for rule in RULES)]:
        assert metric_names(query) <= known, query


def test_every_metric_is_on_the_dashboard_or_is_said_to_be_for_something_else() -> None:
    shown = {name for query in dashboard_queries() for name in metric_names(query)}
    for family in FAMILIES:
        if family.name not in ("weft_node_info", "weft_uptime_seconds", "weft_disk_at_reserve"):
            assert shown & set(family.exposed()), f"no panel shows {family.name}"


def test_panels_have_places_and_a_source() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        own = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert not own & cells, f"{panel['title']} lies on another panel"
        assert place["x"] + place["w"] <= 24
        cells |= own
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "prometheus"


# --- the documents ----------------------------------------------------------------------------


def test_every_alert_says_what_to_do() -> None:
    text = MONITORING.read_text()
    for rule in RULES:
        assert f"\n### {rule['alert']}\n" in text, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
    written = set(re.findall(r"^### (Weft\w+)$", text, flags=re.MULTILINE))
    assert written == {rule["alert"] for rule in RULES}


def test_every_alert_is_tried_in_the_rules_test() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fired = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in RULES}


def test_the_table_of_metrics_is_complete() -> None:
    named = set(re.findall(r"^\| `(weft_\w+)`", MONITORING.read_text(), flags=re.MULTILINE))
    assert named == {family.name for family in FAMILIES}
