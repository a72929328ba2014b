"""A node's settings: one frozen struct, checked once, at construction.

Each setting has one name: ``grace_ms`` is the TOML key, ``WEFT_GRACE_MS`` the environment variable
and ``--grace-ms`` the flag. A flag wins over the environment, the environment over the file named
by ``--config`` (or ``WEFT_CONFIG``), and the file over the default. A key in the file without a
field in this struct is an error, because a misspelt setting would otherwise be ignored in silence.
An unknown ``WEFT_`` variable is no error: clients have variables of their own.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import InvalidArgument
from weft.limits import MIB, QUEUES_MAX, SECOND_MS, check_queue_name, check_range, check_zone

from .address import PORT_MAX, Address

ENVIRONMENT_PREFIX = "WEFT_"
#: Larger than any disk or memory; the limit only rejects nonsense.
BYTES_MAX = 1 << 50
#: One learner takes over within seconds when a member is lost; more learners cover more losses.
LEARNERS_DEFAULT = 1
LEARNERS_MAX = 3
#: Each waiting call takes a task and some 10 kB.
CALLS_MAX = 100_000
#: Above the rate of any node.
RATE_MAX = 1 << 40
#: Waking a sleeping thread takes less.
AWAKE_US_MAX = 10_000
#: Below, a request exceeds a period; above, clients that wait for two rounds give the node up.
SHARE_PERIOD_US = (500, 100_000)
GRACE_MS_MAX = 600 * SECOND_MS
#: As in the engine: a lease takes about 400 bytes.
IN_FLIGHT_MAX = 1_000_000
#: Each connection takes a descriptor and buffers.
CONNECTIONS_MAX = 1_000_000
#: A joining node asks the seeds one after the other.
SEEDS_MAX = 64
#: Offsets of the other ports from the gRPC port.
ZMQ_AFTER, HTTP_AFTER, PEER_AFTER = 1, 2, 3
#: Hosts that mean "every interface": valid for bind, not for connect.
WILDCARDS = ("0.0.0.0", "::", "*")


def _setting(default: Any, help_text: str, choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass(frozen=True)
class Config:
    """All settings of a node. There are no others."""

    data: str = _setting(".weft", "Directory for this node's data; created if it does not exist.")
    listen: str = _setting("127.0.0.1:7700", "HOST:PORT of the gRPC API; port 0: any free port.")
    zmq_listen: str = _setting(
        "", "HOST:PORT of the ZeroMQ data path; empty: the host of --listen, its port plus one."
    )
    http_listen: str = _setting(
        "", "HOST:PORT of metrics and health; empty: the host of --listen, its port plus two."
    )
    peer_listen: str = _setting(
        "", "HOST:PORT for the other nodes; empty: the host of --listen, its port plus three."
    )
    advertise: str = _setting(
        "", "Host by which clients and nodes reach this node; empty: the host of --listen."
    )
    join: str = _setting(
        "", "HOST:PORT,... of gRPC, any members of the cluster to join; empty: found one."
    )
    join_token: str = _setting(
        "", "File with a token that grants admin:*, shown to the members that are to be joined."
    )
    witness: bool = _setting(
        False, "Vote and hold no data: the third vote of a cluster of two data nodes."
    )
    zone: str = _setting(
        "",
        "Name of this node's zone (a data centre, a rack): consumers of stochastic queues with"
        " access near probe nodes of their own zone first.",
    )
    learners: int = _setting(
        -1,
        "Copies of each partition besides the two that a push waits for; set on the node that"
        f" founds a cluster. -1: keep the cluster's number, {LEARNERS_DEFAULT} for a new cluster.",
    )
    durability: str = _setting(
        "disk", "Acknowledge a push after fsync (disk) or from the page cache (os).", ("disk", "os")
    )
    reserve_bytes: int = _setting(
        256 * MIB, "Free disk space below which pushes are refused; acks still work."
    )
    cache_bytes: int = _setting(64 * MIB, "Memory for the bodies of waiting messages.")
    grpc_server: str = _setting(
        "native",
        "The gRPC server: the node's own thread (native), or grpcio in threads of its own.",
        ("native", "grpcio"),
    )
    calls_max: int = _setting(10_000, "gRPC calls under way at most; more are refused.")
    connections_max: int = _setting(
        8_000, "Connections at most, for gRPC and for the data path each; more are closed."
    )
    queues_max: int = _setting(QUEUES_MAX, "Queues of the cluster at most.")
    bytes_max: int = _setting(
        0, "Maximum bytes of messages in the queues of this node; 0: limited by the disk."
    )
    push_rate_max: int = _setting(0, "Messages pushed to this node in a second; 0: no limit.")
    in_flight_max: int = _setting(
        IN_FLIGHT_MAX, "Leases out at one time on this node; more pops are refused."
    )
    audit_log: str = _setting(
        "",
        "File for admin actions and refusals, as JSON lines; empty: audit.jsonl beside the data.",
    )
    awake_us: int = _setting(
        150,
        "Microseconds that the node spins for a caller that it has just answered; 0: never.",
    )
    grace_ms: int = _setting(
        5 * SECOND_MS, "Milliseconds for calls in flight to finish after SIGTERM or Ctrl-C."
    )
    share_period_us: int = _setting(
        2_500,
        "Microseconds over which shares of queues hold: while queues compete, a round of the node"
        " lasts about as long. Shorter: other queues wait less for a flood; longer: more requests"
        " in one write.",
    )
    tls_cert: str = _setting(
        "", "PEM file: this node's certificate, for gRPC and HTTP; encrypts the data path, too."
    )
    tls_key: str = _setting("", "PEM file: the certificate's key.")
    tls_trust_ca: str = _setting(
        "",
        "PEM file: authority of the other nodes' certificates, to join; empty: the system's own.",
    )
    tls_client_ca: str = _setting(
        "", "PEM file: gRPC clients must have a certificate of this authority; empty: need none."
    )
    tls_ca: str = _setting("", "The older name for tls_trust_ca and tls_client_ca in one.")
    tokens: str = _setting(
        "", "File of tokens, from `weft token`; callers must present one. Empty: no token needed."
    )
    insecure: bool = _setting(False, "Allow listening beyond this machine without TLS and tokens.")
    monitor_queue: str = _setting(
        "", "Queue into which this node pushes its figures once a second; empty: none."
    )
    log_level: str = _setting(
        "info", "The least important log lines to write.", ("debug", "info", "warning", "error")
    )
    log_format: str = _setting("text", "Log lines for people, or as JSON.", ("text", "json"))

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises InvalidArgument, naming the setting, at the first invalid value."""
        for field in dataclasses.fields(self):
            _check_kind(field, getattr(self, field.name))
        if not self.data:
            raise InvalidArgument("data must name a directory")
        check_range("reserve_bytes", self.reserve_bytes, 0, BYTES_MAX)
        check_range("cache_bytes", self.cache_bytes, 0, BYTES_MAX)
        check_range("calls_max", self.calls_max, 1, CALLS_MAX)
        check_range("connections_max", self.connections_max, 1, CONNECTIONS_MAX)
        check_range("queues_max", self.queues_max, 1, QUEUES_MAX)
        check_range("bytes_max", self.bytes_max, 0, BYTES_MAX)
        check_range("push_rate_max", self.push_rate_max, 0, RATE_MAX)
        check_range("in_flight_max", self.in_flight_max, 1, IN_FLIGHT_MAX)
        check_range("learners", self.learners, -1, LEARNERS_MAX)
        check_range("awake_us", self.awake_us, 0, AWAKE_US_MAX)
        check_range("grace_ms", self.grace_ms, 0, GRACE_MS_MAX)
        low, high = SHARE_PERIOD_US
        check_range("share_period_us", self.share_period_us, low, high)
        check_zone(self.zone)
        if self.monitor_queue:
            self._validate_monitor()
        self._validate_addresses()
        self._validate_security()
        self._validate_join()

    def _validate_security(self) -> None:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidArgument("tls_cert and tls_key go together: set both or none")
        for name in ("tls_trust_ca", "tls_client_ca", "tls_ca"):
            if getattr(self, name) and not self.tls_cert:
                raise InvalidArgument(f"{name} requires tls_cert and tls_key: it configures TLS")
        if self.tls_ca and (self.tls_trust_ca or self.tls_client_ca):
            raise InvalidArgument(
                "tls_ca sets both tls_trust_ca and tls_client_ca: use tls_ca or the other two. To "
                "trust an authority without requiring client certificates, set only tls_trust_ca"
            )
        missing = [name for name in ("tls_cert", "tokens") if not getattr(self, name)]
        for name, address in (
            ("listen", self.grpc_address),
            ("zmq_listen", self.zmq_address),
            ("http_listen", self.http_address),
        ):
            if not address.is_loopback and missing and not self.insecure:
                raise InvalidArgument(
                    f"{name} {address} can be reached from other machines, and without "
                    f"{' and '.join(missing)} any program there can read and delete every queue: "
                    "set them, listen on 127.0.0.1, or set insecure if the network is trusted"
                )

    def _validate_monitor(self) -> None:
        check_queue_name(self.monitor_queue)
        if self.witness:
            raise InvalidArgument("monitor_queue needs a node with data: a witness has no queues")

    def _validate_addresses(self) -> None:
        taken = {self.grpc_address: "listen"}
        for name, address in (
            ("zmq_listen", self.zmq_address),
            ("http_listen", self.http_address),
            ("peer_listen", self.peer_address),
        ):
            if address.port and address in taken:
                raise InvalidArgument(f"{name} must differ from {taken[address]}, {address}")
            taken[address] = name

    def _validate_join(self) -> None:
        seeds = self.seeds
        if len(seeds) > SEEDS_MAX:
            raise InvalidArgument(f"join takes at most {SEEDS_MAX} addresses, not {len(seeds)}")
        if self.learners >= 0 and seeds:
            raise InvalidArgument(
                "learners is set where a cluster is founded: leave it out with join"
            )
        if self.witness and not seeds:
            raise InvalidArgument("witness needs join: a cluster is founded by a node with data")
        if seeds and not self.advertise:
            for address in (self.grpc_address, self.zmq_address, self.peer_address):
                if address.host in WILDCARDS:
                    raise InvalidArgument(
                        f"advertise must be set: other nodes cannot connect to {address.host}. "
                        "Set the name or the address by which they reach this machine"
                    )

    @property
    def seeds(self) -> tuple[Address, ...]:
        """The members that this node asks for admission."""
        parts = [part.strip() for part in self.join.split(",")] if self.join.strip() else []
        return tuple(Address.parse(part, "join") for part in parts)

    @property
    def grpc_address(self) -> Address:
        """The listen address of the gRPC API."""
        return Address.parse(self.listen, "listen")

    @property
    def zmq_address(self) -> Address:
        """The listen address of the ZeroMQ data path."""
        if self.zmq_listen:
            return Address.parse(self.zmq_listen, "zmq_listen")
        return self._beside("zmq_listen", ZMQ_AFTER)

    @property
    def http_address(self) -> Address:
        """The listen address of metrics and health, over HTTP."""
        if self.http_listen:
            return Address.parse(self.http_listen, "http_listen")
        return self._beside("http_listen", HTTP_AFTER)

    @property
    def peer_address(self) -> Address:
        """The listen address for other nodes."""
        if self.peer_listen:
            return Address.parse(self.peer_listen, "peer_listen")
        return self._beside("peer_listen", PEER_AFTER)

    def _beside(self, name: str, after: int) -> Address:
        host, port = self.grpc_address
        if port + after > PORT_MAX:
            raise InvalidArgument(
                f"{name} must be set: its default, port {port + after}, is above {PORT_MAX}"
            )
        return Address(host, port + after if port else 0)

    @property
    def trust_ca(self) -> tuple[str, str] | None:
        """The setting and the file of the authority for other nodes' certificates."""
        return _named_file(self, "tls_trust_ca")

    @property
    def client_ca(self) -> tuple[str, str] | None:
        """The setting and the file of the authority for the certificates of gRPC clients."""
        return _named_file(self, "tls_client_ca")

    @property
    def audit_path(self) -> Path:
        """The file of the audit log of admin actions."""
        return Path(self.audit_log) if self.audit_log else Path(self.data) / "audit.jsonl"

    def advertised(self, bound: Address) -> Address:
        """The address that clients and nodes get for a socket bound to ``bound``."""
        return Address(self.advertise or bound.host, bound.port)


def _named_file(config: Config, setting: str) -> tuple[str, str] | None:
    """The setting and its file; `tls_ca` also stands for the setting."""
    found = [(name, getattr(config, name)) for name in (setting, "tls_ca")]
    return next((each for each in found if each[1]), None)


FIELDS: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Config)}


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | None = None
) -> Config:
    """The settings of one node. ``flags`` holds only flags given on the command line."""
    file = file or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    values: dict[str, Any] = _read(file) if file else {}
    for name, field in FIELDS.items():
        text = environment.get(environment_name(name))
        if text is not None:
            values[name] = _from_text(field, text)
    return Config(**{**values, **flags})


def environment_name(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def _read(file: str) -> dict[str, Any]:
    try:
        values = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"config file {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"config file {file} is not TOML: {error}") from None
    unknown = sorted(values.keys() - FIELDS.keys())
    if unknown:
        known = ", ".join(FIELDS)
        raise InvalidArgument(
            f"config file {file}: unknown setting {unknown[0]!r}; the settings are {known}"
        )
    return values


def _from_text(field: dataclasses.Field[Any], text: str) -> Any:
    """An environment variable's value as the setting's own type."""
    name = environment_name(field.name)
    if isinstance(field.default, bool):
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if text.lower() not in words:
            raise InvalidArgument(f"{name} must be true or false, not {text[:100]!r}")
        return words[text.lower()]
    if isinstance(field.default, int):
        try:
            return int(text)
        except ValueError:
            raise InvalidArgument(f"{name} must be a whole number, not {text[:100]!r}") from None
    return text


def _check_kind(field: dataclasses.Field[Any], value: object) -> None:
    kind = type(field.default)
    if type(value) is not kind:
        words = {str: "text", int: "a whole number", bool: "true or false"}
        raise InvalidArgument(f"{field.name} must be {words[kind]}, not {value!r}")
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise InvalidArgument(f"{field.name} must be {' or '.join(choices)}, not {value!r}")
