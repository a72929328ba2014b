"""``weft serve``: one flag for each setting of a node, made from the settings themselves."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from weft.errors import InvalidArgument

from .config import FIELDS, environment_name, load


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    """One option for each setting; None stands for an absent flag."""
    for name, field in reversed(FIELDS.items()):
        flag = "--" + name.replace("_", "-")
        kind: Any = type(field.default)
        if kind is bool:
            flag, kind = f"{flag}/--no-{flag.removeprefix('--')}", None
        elif field.metadata["choices"]:
            kind = click.Choice(field.metadata["choices"])
        default = f"default {field.default}, " if field.default != "" else ""
        command = click.option(
            flag,
            name,
            type=kind,
            default=None,
            help=f"{field.metadata['help']} [{default}{environment_name(name)}]",
        )(command)
    return command


@click.command
@_flags
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="TOML file with settings, named as the flags with _ for -. [WEFT_CONFIG]",
)
def serve(file: str | None, **flags: Any) -> None:
    """Run one node until SIGTERM or Ctrl-C.

    Flags take precedence over environment variables, and those over the file. Exit code 0: stopped;
    1: the node could not start; 2: invalid setting; 3: the disk failed.

    \b
    Examples:
      weft serve
      weft serve --data /var/lib/weft --listen 127.0.0.1:7800
      weft serve --config /etc/weft.toml
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        config = load(given, os.environ, file)
    except InvalidArgument as error:
        raise click.UsageError(error.message) from None
    # Import late: --help and wrong flags need not wait half a second for the node's libraries.
    from .serve import serve as run

    sys.exit(run(config))


if __name__ == "__main__":
    serve(prog_name="weft serve")
