"""A node's settings: one frozen struct, checked once, at construction.

Each setting has one name: ``grace_ms`` is the TOML key, ``WEFT_GRACE_MS`` the environment variable
and ``--grace-ms`` the flag. A flag wins over the environment, that over the file named by
``--config`` (or ``WEFT_CONFIG``), that over the default. A key that the file has and this struct
has not is an error, because a misspelt setting would otherwise be ignored in silence. An unknown
``WEFT_`` variable is not: clients have variables of their own.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import InvalidArgument
from weft.limits import MIB, SECOND_MS, check_range

from .address import PORT_MAX, Address

ENVIRONMENT_PREFIX = "WEFT_"
#: Larger than any disk or memory; it only keeps nonsense out.
BYTES_MAX = 1 << 50
#: Each waiting call is a task and some 10 kB.
CALLS_MAX = 100_000
GRACE_MS_MAX = 600 * SECOND_MS


def _setting(default: Any, help_text: str, choices: tuple[str, ...] = ()) -> Any:
    return dataclasses.field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass(frozen=True)
class Config:
    """All of a node's settings. There are no others."""

    data: str = _setting(".weft", "Directory for this node's data; made if it is not there.")
    listen: str = _setting("127.0.0.1:7700", "HOST:PORT of the gRPC API; port 0: any free port.")
    zmq_listen: str = _setting(
        "", "HOST:PORT of the ZeroMQ data path; empty: the host of --listen, its port plus one."
    )
    advertise: str = _setting(
        "", "Host name that clients are told to connect to; empty: the host of --listen."
    )
    durability: str = _setting(
        "disk", "When a push is acknowledged: after fsync, or in the page cache.", ("disk", "os")
    )
    reserve_bytes: int = _setting(
        256 * MIB, "Free disk space below which pushes are refused; acks still work."
    )
    cache_bytes: int = _setting(64 * MIB, "Memory for the bodies of waiting messages.")
    calls_max: int = _setting(10_000, "gRPC calls under way at most; more are refused.")
    grace_ms: int = _setting(
        5 * SECOND_MS, "Time for calls under way to finish when the node is told to stop."
    )
    insecure: bool = _setting(
        False, "Allow listening beyond this machine. There is no authentication yet."
    )
    log_level: str = _setting(
        "info", "The least important log lines to write.", ("debug", "info", "warning", "error")
    )
    log_format: str = _setting("text", "Log lines for people, or as JSON.", ("text", "json"))

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raises InvalidArgument, naming the setting, at the first value that cannot be."""
        for field in dataclasses.fields(self):
            _check_kind(field, getattr(self, field.name))
        if not self.data:
            raise InvalidArgument("data must name a directory")
        check_range("reserve_bytes", self.reserve_bytes, 0, BYTES_MAX)
        check_range("cache_bytes", self.cache_bytes, 0, BYTES_MAX)
        check_range("calls_max", self.calls_max, 1, CALLS_MAX)
        check_range("grace_ms", self.grace_ms, 0, GRACE_MS_MAX)
        self._validate_addresses()

    def _validate_addresses(self) -> None:
        for name, address in (("listen", self.grpc_address), ("zmq_listen", self.zmq_address)):
            if not address.is_loopback and not self.insecure:
                raise InvalidArgument(
                    f"{name} {address} can be reached from other machines, and there is no "
                    "authentication yet: anyone there could read and delete every queue. Listen on "
                    "127.0.0.1, or set insecure if the network itself is trusted"
                )
        if self.grpc_address == self.zmq_address and self.grpc_address.port != 0:
            raise InvalidArgument(f"zmq_listen must differ from listen, {self.grpc_address}")

    @property
    def grpc_address(self) -> Address:
        """Where the gRPC API is to listen."""
        return Address.parse(self.listen, "listen")

    @property
    def zmq_address(self) -> Address:
        """Where the ZeroMQ data path is to listen."""
        if self.zmq_listen:
            return Address.parse(self.zmq_listen, "zmq_listen")
        host, port = self.grpc_address
        if port == PORT_MAX:
            raise InvalidArgument(f"zmq_listen must be set: there is no port after {port}")
        return Address(host, port + 1 if port else 0)

    def advertised(self, bound: Address) -> Address:
        """What clients are told about a socket that is bound to ``bound``."""
        return Address(self.advertise or bound.host, bound.port)


FIELDS: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Config)}


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: str | None = None
) -> Config:
    """The settings of one node. ``flags`` holds only what was given on the command line."""
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
            f"config file {file}: no setting is called {unknown[0]!r}; there are {known}"
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
