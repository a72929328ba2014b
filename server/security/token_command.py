"""``weft token``: creates, lists and revokes tokens, in the file that a node reads."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, Final

import click

from weft.errors import InvalidArgument

from . import token_file
from .access import PERMISSIONS, Limits
from .token_file import TokenEntry

_UNITS_S: Final = {"m": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([mhd])")

_file = click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="WEFT_TOKENS",
    show_envvar=True,
    required=True,
    help="Path of the token file: the node's setting `tokens`.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print output and errors as JSON.")


def _wants_json(given: bool) -> bool:
    # `weft --json token list` has the option before the command.
    return given or bool(click.get_current_context().meta.get("weft.json"))


@click.group
def token() -> None:
    """Create, list and revoke tokens in the token file of a node.

    A running node reloads the file within two seconds.

    \b
    Example:
      weft token create shop --grant 'push:orders.*' --file tokens.json
    """


@token.command
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    metavar="PERMISSION:PATTERN",
    help="A permission for the names that match a pattern, * for any text; repeatable. "
    f"Permissions: {', '.join(PERMISSIONS)}.",
)
@click.option(
    "--expires",
    default="90d",
    show_default=True,
    help="Validity in minutes, hours or days (30m, 12h, 90d), or never.",
)
@click.option("--rate", default=0, help="Maximum messages pushed per second, to each node; 0: any.")
@click.option("--bytes-rate", default=0, help="Maximum bytes pushed per second, to each node.")
@click.option("--queues", default=0, help="Maximum number of queues that the token administers.")
@_file
@_json
def create(
    name: str,
    grants: tuple[str, ...],
    expires: str,
    rate: int,
    bytes_rate: int,
    queues: int,
    file: Path,
    as_json: bool,
) -> None:
    """Create a token and print the secret, which is stored nowhere else.

    \b
    Examples:
      weft token create shop --grant 'push:orders.*'
      weft token create prometheus --grant 'watch:*' --expires never
    """
    limits = Limits(rate, bytes_rate, queues)
    entry, secret = token_file.create(
        file, name, list(grants), expiry(expires, time.time()), limits
    )
    if _wants_json(as_json):
        click.echo(json.dumps(shown(entry) | {"token": secret}, indent=2))
    else:
        click.echo(secret)


@token.command("list")
@_file
@_json
def list_(file: Path, as_json: bool) -> None:
    """List the tokens, without their secrets, which are not stored.

    \b
    Example:
      weft token list --file tokens.json
    """
    found = sorted(token_file.read(file), key=lambda entry: (entry.name, entry.created))
    if _wants_json(as_json):
        click.echo(json.dumps([shown(entry) for entry in found], indent=2))
        return
    for entry in found:
        facts = shown(entry)
        until = facts["expires"] or "never"
        late = " (expired)" if facts["expired"] else ""
        most = "".join(f"  {name} {value}" for name, value in facts["limits"].items())
        grants = " ".join(entry.grants)
        click.echo(f"{entry.id}  {entry.name}  {grants}  expires {until}{late}{most}")


@token.command
@click.argument("which", metavar="ID|NAME")
@_file
@_json
def revoke(which: str, file: Path, as_json: bool) -> None:
    """Remove tokens from the file; nodes refuse them within two seconds.

    \b
    Example:
      weft token revoke shop --file tokens.json
    """
    gone = token_file.revoke(file, which)
    if _wants_json(as_json):
        click.echo(json.dumps([shown(entry) for entry in gone], indent=2))
    else:
        for entry in gone:
            click.echo(f"revoked {entry.id} of {entry.name}")


def expiry(text: str, now: float) -> int:
    """Seconds since 1970; 0 for never."""
    if text == "never":
        return 0
    span = _SPAN.fullmatch(text)
    if span is None:
        raise InvalidArgument(f"--expires takes 30m, 12h, 90d or never, not {text[:100]!r}")
    return int(now) + int(span[1]) * _UNITS_S[span[2]]


def shown(entry: TokenEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": entry.name,
        "grants": entry.grants,
        "created": _time(entry.created),
        "expires": _time(entry.expires) if entry.expires else None,
        "expired": bool(entry.expires) and time.time() >= entry.expires,
        "limits": {
            name: most
            for name in ("rate", "bytes_rate", "queues")
            if (most := getattr(entry, name))
        },
    }


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
