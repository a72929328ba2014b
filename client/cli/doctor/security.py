"""Security checks: exposure, encryption, tokens, quotas, and expiring certificates and tokens.

Two views: a remote server as seen by a client, and the settings of the node on this machine
(`weft doctor --config FILE`).
"""

from __future__ import annotations

import os
import resource
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.client.cli import extras
from weft.client.cli.units import count
from weft.client.transport.credentials import Credentials
from weft.errors import WeftError

from . import certificate
from .finding import Finding, check_private

if TYPE_CHECKING:
    from weft import Client

#: Warn this many days before expiry, so that a failed renewal is noticed in time.
DAYS_GOOD: Final = 21
#: Tolerated clock skew: tokens expire and delays end by the nodes' clocks.
SKEW_S_GOOD: Final = 2.0
SKEW_S_MAX: Final = 30.0
CONNECT_S: Final = 2.0
_LOOPBACK: Final = ("127.", "localhost", "[::1]", "::1")
#: Descriptors of a node besides those of connections.
_FILES_OF_A_NODE: Final = 1024


def check_server(server: str, client: Client) -> list[Finding]:
    found = [check_clock(server, client)]
    secure = Credentials.of(None, None).tls is not None
    found.append(check_path(server, secure=secure))
    if secure:
        found.append(_of_server(server))
    return found


def check_path(server: str, *, secure: bool) -> Finding:
    check = f"{server} encryption"
    if secure:
        return Finding("OK", check, "TLS")
    if server.startswith(_LOOPBACK):
        return Finding("OK", check, "none, on this machine")
    return Finding(
        "WARN", check, "none: messages and tokens are readable on the network",
        "set tls_cert and tls_key on the nodes, and WEFT_TLS for clients",
    )  # fmt: skip


def check_clock(server: str, client: Client) -> Finding:
    """Compares the node's clock with this machine's; the round trip bounds the precision."""
    before = time.time()
    there = client.status().now_ms / 1000
    after = time.time()
    return judge_skew(server, there, before, after)


def judge_skew(server: str, there: float, before: float, after: float) -> Finding:
    check = f"{server} clock"
    if not there:
        return Finding("WARN", check, "the node does not report its time", "upgrade the node")
    skew = max(before - there, there - after, 0.0)
    found = f"{skew:.1f} s off this machine's clock"
    advice = "run an NTP client on every machine: tokens expire and delays end by these clocks"
    if skew > SKEW_S_MAX:
        return Finding("FAIL", check, found, advice)
    if skew > SKEW_S_GOOD:
        return Finding("WARN", check, found, advice)
    return Finding("OK", check, found)


def judge_expiry(check: str, until: datetime, now: datetime) -> Finding:
    days = (until - now).total_seconds() / 86_400
    found = f"valid until {until:%Y-%m-%d %H:%M} UTC, {days:.0f} days"
    advice = "replace the files by renewed ones: the node reloads them by itself"
    if days <= 0:
        return Finding("FAIL", check, f"expired on {until:%Y-%m-%d %H:%M} UTC", advice)
    if days < DAYS_GOOD:
        return Finding("WARN", check, found, advice)
    return Finding("OK", check, found)


def _of_server(server: str) -> Finding:
    check = f"{server} certificate"
    try:
        return judge_expiry(check, certificate.of_server(server, CONNECT_S), datetime.now(UTC))
    except (OSError, ssl.SSLError, ValueError) as error:
        return Finding("WARN", check, f"not readable: {error}", "check the node's tls_cert")


# --- the settings of a node on this machine ---------------------------------------------------


def check_settings(file: str | None) -> list[Finding]:
    name = file or "settings"
    try:
        config = extras.load("weft.server.config").load({}, os.environ, file)
    except WeftError as error:
        advice = "correct the settings: `weft serve` does not start with them"
        return [Finding("FAIL", name, error.message, advice)]
    found = [check_listening(config)]
    if config.tokens:
        found += [check_private("tokens", config.tokens), *_tokens(config.tokens)]
    if config.tls_cert:
        found += [check_private("tls_key", config.tls_key), _certificate(config.tls_cert)]
    if Path(config.data).is_dir():
        found.append(check_private("data", config.data, 0o700))
    found += [check_quotas(config), check_audit(config), check_descriptors(config)]
    return found


def check_listening(config: Any) -> Finding:
    addresses = (config.grpc_address, config.zmq_address, config.http_address)
    beyond = sorted({str(address) for address in addresses if not address.is_loopback})
    if not beyond:
        return Finding("OK", "listening", "on this machine only")
    if config.tls_cert and config.tokens:
        return Finding("OK", "listening", f"{', '.join(beyond)}, with TLS and tokens")
    missing = [name for name in ("tls_cert", "tokens") if not getattr(config, name)]
    return Finding(
        "FAIL", "listening", f"{', '.join(beyond)} without {' and '.join(missing)} (insecure)",
        "set them, or listen on 127.0.0.1: any client that reaches these ports has all permissions",
    )  # fmt: skip


def _tokens(path: str) -> list[Finding]:
    try:
        entries = extras.load("weft.server.security.token_file").read(Path(path))
    except WeftError as error:
        advice = "repair the file, or create it again with `weft token create`"
        return [Finding("FAIL", "tokens", error.message, advice)]
    now = time.time()
    late = [each.name for each in entries if each.expires and each.expires <= now]
    soon = [
        each.name
        for each in entries
        if each.expires and 0 < each.expires - now < DAYS_GOOD * 86_400
    ]
    mighty = [each.name for each in entries if "admin:*" in each.grants and not each.expires]
    found = []
    if late:
        words = f"expired: {', '.join(late[:5])}"
        advice = "run `weft token revoke`, or create new tokens"
        found.append(Finding("WARN", "tokens", words, advice))
    if soon:
        words = f"expire within {DAYS_GOOD} days: {', '.join(soon[:5])}"
        found.append(Finding("WARN", "tokens", words, "create and distribute new tokens"))
    if mighty:
        words = f"admin:* without expiry: {', '.join(mighty[:5])}"
        found.append(Finding("WARN", "tokens", words, "set an expiry (--expires 90d)"))
    return found or [Finding("OK", "tokens", f"{count(len(entries))}, none expires soon")]


def _certificate(path: str) -> Finding:
    try:
        return judge_expiry("tls_cert", certificate.of_file(path), datetime.now(UTC))
    except (OSError, ValueError) as error:
        return Finding("FAIL", "tls_cert", f"{path}: {error}", "set a certificate in PEM form")


def check_quotas(config: Any) -> Finding:
    unset = [name for name in ("bytes_max", "push_rate_max") if not getattr(config, name)]
    most = f"queues {count(config.queues_max)}, in flight {count(config.in_flight_max)}"
    if not unset or not config.tokens:
        return Finding("OK", "quotas", most)
    return Finding(
        "WARN", "quotas", f"{most}; without a limit: {', '.join(unset)}",
        "set them, or give tokens a --rate: otherwise one client can fill the disk",
    )  # fmt: skip


def check_audit(config: Any) -> Finding:
    path = config.audit_path
    folder = path.parent
    if folder.is_dir() and not os.access(folder, os.W_OK):
        return Finding("FAIL", "audit log", f"{folder} is not writable", "set another file")
    return Finding("OK", "audit log", str(path))


def check_descriptors(config: Any) -> Finding:
    wanted = 2 * config.connections_max + _FILES_OF_A_NODE
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    found = f"connections_max {count(config.connections_max)}"
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return Finding(
            "WARN", "connections", f"{found} needs {count(wanted)} open files of {count(hard)}",
            "raise the hard limit (LimitNOFILE=, ulimit -Hn), or lower connections_max",
        )  # fmt: skip
    return Finding("OK", "connections", found)
