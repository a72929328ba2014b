"""One name for flag, environment and file; one order of precedence; one place of validation."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from weft.errors import InvalidArgument
from weft.server import config as settings
from weft.server.address import Address
from weft.server.config import FIELDS, Config, environment_name, load

SAMPLE = Path(__file__).parents[2] / "docs" / "weft.toml"


def test_sample_file_shows_the_defaults() -> None:
    bare = re.sub(r"^#(?=\w+ = )", "", SAMPLE.read_text(), flags=re.MULTILINE)
    assert tomllib.loads(bare) == dataclasses.asdict(Config())


def test_sample_file_as_it_is_changes_nothing() -> None:
    assert load({}, {}, str(SAMPLE)) == Config()


def test_sample_file_has_the_settings_in_order() -> None:
    named = re.findall(r"^#(\w+) = ", SAMPLE.read_text(), flags=re.MULTILINE)
    assert named == list(FIELDS)


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "weft.toml"
    file.write_text('grace_ms = 1\ncache_bytes = 2\nlog_level = "debug"\n')
    environment = {"WEFT_GRACE_MS": "10", "WEFT_CACHE_BYTES": "20"}
    loaded = load({"grace_ms": 100}, environment, str(file))
    assert loaded == Config(grace_ms=100, cache_bytes=20, log_level="debug")


def test_the_file_can_be_named_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "weft.toml"
    file.write_text("grace_ms = 1\n")
    assert load({}, {"WEFT_CONFIG": str(file)}).grace_ms == 1


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_can_come_from_the_environment(name: str) -> None:
    changed: dict[str, Any] = {
        "data": "x", "listen": "127.0.0.1:1", "zmq_listen": "127.0.0.1:2", "advertise": "h",
        "http_listen": "127.0.0.1:4", "peer_listen": "127.0.0.1:3", "join": "h:1",
        "join_token": "j", "witness": True, "zone": "z", "learners": 0,
        "durability": "os", "reserve_bytes": 1, "cache_bytes": 1, "calls_max": 1,
        "connections_max": 1, "queues_max": 1, "bytes_max": 1, "push_rate_max": 1,
        "in_flight_max": 1, "audit_log": "a", "grpc_server": "grpcio",
        "awake_us": 0, "grace_ms": 1, "share_period_us": 9_000,
        "tls_cert": "c", "tls_key": "k", "tls_ca": "a", "tokens": "t",
        "tls_trust_ca": "a", "tls_client_ca": "a",
        "insecure": True, "monitor_queue": "m", "log_level": "error", "log_format": "json",
    }  # fmt: skip
    beside: dict[str, Any] = {"tls_cert": "c", "tls_key": "k"} if name.startswith("tls_") else {}
    needs: dict[str, Any] = {other: value for other, value in beside.items() if other != name}
    if name == "witness":
        needs["join"] = "h:1"
    loaded = load(needs, {environment_name(name): str(changed[name])})
    assert loaded == Config(**needs, **{name: changed[name]})
    assert loaded != Config()


def test_clients_variables_are_not_ours() -> None:
    assert load({}, {"WEFT_SERVERS": "a:1"}) == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grace = 1", "unknown setting 'grace'"),
        ("grace_ms = '1'", "grace_ms must be a whole number"),
        ("grace_ms = true", "grace_ms must be a whole number"),
        ("insecure = 1", "insecure must be true or false"),
        ("grace_ms = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "weft.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match=says):
        load({}, {}, str(file))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"none\.toml cannot be read: No such file"):
        load({}, {}, str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [("WEFT_GRACE_MS", "soon", "whole number"), ("WEFT_INSECURE", "maybe", "true or false")],
)
def test_a_wrong_variable_is_refused_by_its_name(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be .*{says}"):
        load({}, {name: text})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", ""),
        ("listen", "7700"),
        ("listen", ":7700"),
        ("listen", "127.0.0.1:65536"),
        ("listen", "127.0.0.1:-1"),
        ("listen", "::1:7700"),
        ("zmq_listen", "127.0.0.1"),
        ("zmq_listen", "127.0.0.1:7700"),
        ("http_listen", "7702"),
        ("http_listen", "127.0.0.1:7700"),
        ("http_listen", "127.0.0.1:7701"),
        ("tls_cert", "cert.pem"),
        ("tls_key", "key.pem"),
        ("tls_ca", "ca.pem"),
        ("tls_trust_ca", "ca.pem"),
        ("tls_client_ca", "ca.pem"),
        ("peer_listen", "127.0.0.1"),
        ("peer_listen", "127.0.0.1:7700"),
        ("peer_listen", "127.0.0.1:7701"),
        ("join", "7700"),
        ("join", "a:1,,b:1"),
        ("join", ",".join(f"h:{port}" for port in range(settings.SEEDS_MAX + 1))),
        ("witness", True),
        ("learners", -2),
        ("learners", 4),
        ("durability", "none"),
        ("reserve_bytes", -1),
        ("cache_bytes", settings.BYTES_MAX + 1),
        ("calls_max", 0),
        ("calls_max", settings.CALLS_MAX + 1),
        ("awake_us", -1),
        ("awake_us", settings.AWAKE_US_MAX + 1),
        ("grace_ms", settings.GRACE_MS_MAX + 1),
        ("share_period_us", settings.SHARE_PERIOD_US[0] - 1),
        ("share_period_us", settings.SHARE_PERIOD_US[1] + 1),
        ("log_level", "loud"),
        ("log_format", "xml"),
    ],
)
def test_a_wrong_value_is_refused_by_the_settings_name(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=name):
        Config(**{name: value})  # type: ignore[arg-type]


def test_the_authority_to_trust_and_the_one_to_demand_are_two_settings() -> None:
    pair: dict[str, Any] = {"tls_cert": "c", "tls_key": "k"}
    trusting = Config(**pair, tls_trust_ca="a")
    assert (trusting.trust_ca, trusting.client_ca) == (("tls_trust_ca", "a"), None)
    demanding = Config(**pair, tls_client_ca="b")
    assert (demanding.trust_ca, demanding.client_ca) == (None, ("tls_client_ca", "b"))
    older = Config(**pair, tls_ca="a")  # both, as before
    assert (older.trust_ca, older.client_ca) == (("tls_ca", "a"), ("tls_ca", "a"))
    for name in ("tls_trust_ca", "tls_client_ca"):
        both: dict[str, Any] = {**pair, "tls_ca": "a", name: "b"}
        with pytest.raises(InvalidArgument, match="set only tls_trust_ca"):
            Config(**both)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "node-1"])
@pytest.mark.parametrize("name", ["listen", "zmq_listen", "http_listen"])
def test_beyond_this_machine_only_when_asked_for(name: str, host: str) -> None:
    values: dict[str, Any] = {name: f"{host}:7000"}
    with pytest.raises(InvalidArgument, match=f"{name} .* other machines.*set insecure"):
        Config(**values)
    assert Config(**values, insecure=True)


def test_beyond_this_machine_with_tls_and_tokens() -> None:
    secure: dict[str, Any] = {"tls_cert": "c", "tls_key": "k", "tokens": "t"}
    assert Config(listen="10.0.0.1:7700", **secure)
    for name, says in (("tokens", "without tokens any program"), ("tls_", "without tls_cert")):
        weak = {key: value for key, value in secure.items() if not key.startswith(name)}
        with pytest.raises(InvalidArgument, match=says):
            Config(listen="10.0.0.1:7700", **weak)


@pytest.mark.parametrize("listen", ["127.0.0.1:7000", "127.8.9.1:7000", "[::1]:7000"])
def test_zmq_and_http_listen_on_the_next_ports(listen: str) -> None:
    config = Config(listen=listen)
    assert str(config.grpc_address) == listen
    assert config.zmq_address == Address(config.grpc_address.host, 7001)
    assert config.http_address == Address(config.grpc_address.host, 7002)


@pytest.mark.parametrize("listen", ["127.0.0.1:7000", "[::1]:7000"])
def test_other_nodes_are_heard_three_ports_on(listen: str) -> None:
    config = Config(listen=listen)
    assert config.peer_address == Address(config.grpc_address.host, 7003)


def test_port_0_lets_the_system_pick_all() -> None:
    config = Config(listen="localhost:0")
    addresses = (config.grpc_address, config.zmq_address, config.http_address, config.peer_address)
    assert set(addresses) == {("localhost", 0)}


def test_the_last_port_has_no_next() -> None:
    with pytest.raises(InvalidArgument, match="zmq_listen must be set"):
        Config(listen="127.0.0.1:65535")
    with pytest.raises(InvalidArgument, match="http_listen must be set"):
        Config(listen="127.0.0.1:65534")
    with pytest.raises(InvalidArgument, match="peer_listen must be set"):
        Config(listen="127.0.0.1:65533")


def test_how_many_learn_is_for_the_founder_to_say() -> None:
    assert Config(learners=0).learners == 0
    with pytest.raises(InvalidArgument, match="learners is set where a cluster is founded"):
        Config(learners=0, join="h:1")


def test_members_to_join_stand_with_commas() -> None:
    assert Config().seeds == ()
    assert Config(join="a:1, [::1]:2").seeds == (Address("a", 1), Address("::1", 2))


@pytest.mark.parametrize("name", ["listen", "zmq_listen", "peer_listen"])
def test_whoever_joins_says_where_it_can_be_reached(name: str) -> None:
    values: dict[str, Any] = {name: "0.0.0.0:7000", "join": "h:1", "insecure": True}
    with pytest.raises(InvalidArgument, match="advertise must be set"):
        Config(**values)
    assert Config(**values, advertise="node-1")


def test_the_peer_port_lets_only_members_in_and_may_be_anywhere() -> None:
    assert Config(peer_listen="0.0.0.0:7703")


def test_clients_are_told_the_advertised_host() -> None:
    bound = Address("127.0.0.1", 7001)
    assert Config().advertised(bound) == bound
    assert Config(advertise="node-1").advertised(bound) == Address("node-1", 7001)
