"""`weft doctor`: runs all checks in order and sets the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from weft.client.cli import options, output
from weft.client.cli.advice import TRY
from weft.client.cli.failure import CommandFailed
from weft.client.cli.units import count, size
from weft.errors import WeftError

from . import cluster, data, machine, node, reach, security
from .finding import Finding

if TYPE_CHECKING:
    from weft import Client

_COLOURS: Final = {"OK": "green", "WARN": "yellow", "FAIL": "red"}


@click.command
@click.option(
    "--data",
    "directory",
    type=click.Path(),
    metavar="DIR",
    help="Also verify every record in the data directory of a stopped node.",
)
@click.option(
    "--config",
    "settings",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also check a node's configuration file, its tokens and its certificate.",
)
@options.everywhere
def doctor(directory: str | None, settings: str | None) -> None:
    """Check this machine and nodes, and print advice for every problem.

    Exit code 1 if a check FAILs. With --data or --config, nodes are checked only if --servers is
    given. --data requires that the node of the directory is stopped.

    \b
    Examples:
      weft doctor
      weft doctor -s 10.0.0.5:7700 --json
      weft doctor --data .weft
      weft doctor --config /etc/weft.toml
    """
    findings = machine.check_machine()
    if settings is not None:
        findings += security.check_settings(settings)
    if (directory is None and settings is None) or options.servers() is not None:
        findings += _check_servers()
    if directory is not None:
        with _progress() as progress:
            findings += data.check_data(directory, progress)
    if options.wants_json():
        output.as_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if any(finding.level == "FAIL" for finding in findings):
        raise CommandFailed


def _check_servers() -> list[Finding]:
    from weft.client.routing.discovery import parse_servers

    return [
        finding for server in parse_servers(options.servers()) for finding in _check_server(server)
    ]


def _check_server(server: str) -> list[Finding]:
    health = reach.check_health(server)
    if health.level == "FAIL":
        return [health]
    try:
        client = options.connect(server)
    except WeftError as error:
        return [health, Finding("FAIL", f"{server} view", error.message, TRY[error.code])]
    with client:
        path = reach.check_data_path(server, client)
        if path.level == "FAIL":
            return [health, path]
        try:
            return [health, path, *_ask(server, client)]
        except WeftError as error:
            return [health, path, Finding("FAIL", server, error.message, TRY[error.code])]


def _ask(server: str, client: Client) -> list[Finding]:
    import weft

    status, queues = client.status(), client.list_queues()
    return [
        node.check_version(server, weft.__version__, status),
        cluster.check_cluster(server),
        node.check_space(server, status),
        node.check_durability(server, status),
        node.check_dead_letters(server, queues),
        node.check_forgotten(server, queues),
        *security.check_server(server, client),
    ]


def _show(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        # click strips the colour if standard output is no terminal.
        level = click.style(finding.level.ljust(4), fg=_COLOURS[finding.level])
        click.echo(f"{level}  {finding.check.ljust(width)}  {finding.found}")
        if finding.advice:
            click.echo(f"{' ' * (width + 8)}try: {finding.advice}")


@contextmanager
def _progress() -> Iterator[data.OnRecord]:
    """A progress line with counts on a terminal; no output otherwise."""
    if not sys.stderr.isatty():
        yield lambda records, read: None
        return
    try:
        yield lambda records, read: click.echo(
            f"\r{count(records)} records, {size(read)} read\033[K", nl=False, err=True
        )
    finally:
        click.echo("\r\033[K", nl=False, err=True)
