"""``weft tls``: a private certificate authority, and certificates for nodes and clients.

`init` creates the authority and signs; `sign` signs more certificates with the same authority.
Private keys have mode 0600. No command overwrites a file: all file names are checked first, and
the first file is written only if all of them are free.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any, Final

import click

from weft.client.admin.certificate_authority import Authority, file_name
from weft.errors import InvalidArgument

from . import options, output

HOSTS_MAX: Final = 100
DAYS_DEFAULT: Final = 825
DAYS_MAX: Final = 3650
CA_DAYS: Final = 3650
PORT_DEFAULT: Final = 7700
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_GRANTS: Final = ("admin", "push", "consume", "watch", "table")

_DIR: Final = click.Path(file_okay=False, path_type=Path)
_days = click.option(
    "--days", type=click.IntRange(1, DAYS_MAX), default=DAYS_DEFAULT, show_default=True,
    help="Validity of the certificates, in days.",
)  # fmt: skip
_clients = click.option(
    "--client", "clients", multiple=True, metavar="NAME",
    help="Also create a certificate for this client, for mutual TLS; repeatable.",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help="Print output and errors as JSON.")


@click.group
def tls() -> None:
    """Create a private certificate authority and certificates for nodes and clients.

    \b
    Example:
      weft tls init certs --hosts a.example,b.example,c.example
    """


@tls.command
@click.argument("directory", metavar="DIR", type=_DIR)
@click.option(
    "--hosts", required=True, metavar="HOST,...",
    help="Host names or addresses of the nodes, without ports.",
)  # fmt: skip
@_clients
@_days
@click.option(
    "--port", type=click.IntRange(1, 65_532), default=PORT_DEFAULT, show_default=True,
    help="gRPC port in the printed commands.",
)  # fmt: skip
@_json
def init(
    directory: Path, hosts: str, clients: tuple[str, ...], days: int, port: int, as_json: bool
) -> None:
    """Create an authority and certificates in DIR, and print the commands that use them.

    The command writes ca.pem and ca.key, HOST.pem and HOST.key for each host, and client-NAME.pem
    and client-NAME.key for each --client. Key files have mode 0600. Existing files are never
    overwritten.

    \b
    Examples:
      weft tls init certs --hosts a.example,b.example,c.example
      weft tls init certs --hosts 127.0.0.1,127.0.0.2,127.0.0.3
      weft tls init certs --hosts a.example --client shop     (mutual TLS)
    """
    names = _hosts(hosts)
    _check_names(clients)
    authority = Authority.plan(directory)
    files = authority.create(CA_DAYS, names, clients)
    files += authority.sign_all(names, clients, days)
    commands = Commands(directory, names, port, clients)
    _report(files, commands, as_json=as_json)


@tls.command
@click.argument("directory", metavar="DIR", type=_DIR)
@click.option("--hosts", default="", metavar="HOST,...", help="Further hosts.")
@_clients
@_days
@_json
def sign(directory: Path, hosts: str, clients: tuple[str, ...], days: int, as_json: bool) -> None:
    """Sign more certificates with the authority of `weft tls init DIR`.

    \b
    Examples:
      weft tls sign certs --hosts d.example
      weft tls sign certs --client billing
    """
    names = _hosts(hosts) if hosts else []
    if not names and not clients:
        raise InvalidArgument("nothing to sign: pass --hosts or --client")
    _check_names(clients)
    files = Authority.load(directory).sign_all(names, clients, days)
    _report(files, None, as_json=as_json)


def _hosts(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not 1 <= len(names) <= HOSTS_MAX or len(set(names)) != len(names):
        raise InvalidArgument(f"--hosts takes 1 to {HOSTS_MAX} different names, not {text[:100]!r}")
    for name in names:
        if not _NAME.fullmatch(name) and not is_address(name):
            raise InvalidArgument(
                f"--hosts takes host names and addresses without a port, not {name[:100]!r}"
            )
    return names


def _check_names(clients: tuple[str, ...]) -> None:
    for name in clients:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(f"--client takes letters, digits, . _ and -, not {name[:100]!r}")


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Commands:
    """The shell commands that use the new files, ready to paste."""

    def __init__(self, folder: Path, hosts: list[str], port: int, clients: tuple[str, ...]) -> None:
        self._folder = folder
        self._hosts = hosts
        self._port = port
        self._clients = clients

    def token(self) -> str:
        grants = " ".join(f"--grant '{grant}:*'" for grant in _GRANTS)
        at = self._folder
        return f"weft token create admin {grants} --file {at}/tokens.json > {at}/admin.token"

    def node(self, host: str) -> str:
        at, first = self._folder, self._hosts[0]
        words = ["weft serve", f"--data data-{file_name(host)}", *self._listening(host)]
        if host != first:
            words += [f"--join {self._address(first)}", f"--join-token {at}/admin.token"]
        pair = f"--tls-cert {at}/{file_name(host)}.pem --tls-key {at}/{file_name(host)}.key"
        words += [pair, f"--tls-trust-ca {at}/ca.pem", f"--tokens {at}/tokens.json"]
        if self._clients:
            words.append(f"--tls-client-ca {at}/ca.pem")
        return " ".join(words)

    def client(self) -> str:
        at = self._folder
        servers = ",".join(map(self._address, self._hosts))
        words = [f"export WEFT_SERVERS={servers}", f"WEFT_TLS={at}/ca.pem"]
        words.append(f"WEFT_TOKEN_FILE={at}/admin.token")
        if self._clients:
            own = f"{at}/client-{self._clients[0]}"
            words += [f"WEFT_TLS_CLIENT_CERT={own}.pem", f"WEFT_TLS_CLIENT_KEY={own}.key"]
        return " ".join(words)

    def _listening(self, host: str) -> list[str]:
        if is_address(host) or host == "localhost":
            return [f"--listen {self._address(host)}"]
        return [f"--listen 0.0.0.0:{self._port}", f"--advertise {host}"]

    def _address(self, host: str) -> str:
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    def text(self) -> str:
        """Comments and commands in the order in which an operator runs them."""
        at, nodes = self._folder, [(host, self.node(host)) for host in self._hosts]
        lines = ["# Once, on this machine: a token for the operator, valid for 90 days."]
        lines.append(self.token())
        lines.append(
            f"# Copy {at}/ca.pem, tokens.json, admin.token and the two files of a host to the same "
            "path on"
        )
        lines.append(f"# that host. Keep {at}/ca.key here: its holder can sign for any host.")
        for host, command in nodes:
            lines += [f"# On {host}:", command]
        lines += ["# On a client that has ca.pem and admin.token:", self.client()]
        lines += ["weft cluster status"]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        nodes = {host: self.node(host) for host in self._hosts}
        return {"token": self.token(), "nodes": nodes, "client": self.client()}


def _report(files: list[Path], commands: Commands | None, *, as_json: bool) -> None:
    if as_json or options.wants_json():
        said: dict[str, Any] = {"files": [str(file) for file in files]}
        output.as_json(said | ({"commands": commands.as_json()} if commands is not None else {}))
        return
    click.echo(f"# created: {', '.join(str(file) for file in files)}")
    if commands is not None:
        click.echo(commands.text())
