"""The `weft` command: its list of commands, each loaded when it is used, and how it ends.

Loading is lazy for two reasons: `weft push` should not wait for what only `weft bench` needs, and
`weft serve` belongs to the server, which the client never imports and which may not be installed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from weft.errors import WeftError

from . import extras, failure, options


class CommandLocation(NamedTuple):
    """Where a command is, and its line in the list."""

    module: str
    name: str
    short_help: str


_HERE: Final = "weft.client.cli"
COMMANDS: Final[dict[str, CommandLocation]] = {
    "serve": CommandLocation("weft.server.serve_command", "serve", "Run a node on this machine."),
    "cluster": CommandLocation(
        f"{_HERE}.cluster.command", "cluster", "Start, look at and shrink a cluster."
    ),
    "queue": CommandLocation(
        f"{_HERE}.queue", "queue", "Create, list, show, change and empty queues."
    ),
    "subscription": CommandLocation(
        f"{_HERE}.subscription", "subscription", "List, show, release and delete subscriptions."
    ),
    "push": CommandLocation(f"{_HERE}.push", "push", "Put messages into a queue."),
    "pop": CommandLocation(
        f"{_HERE}.pop", "pop", "Take messages from a queue and print their bodies."
    ),
    "peek": CommandLocation(f"{_HERE}.peek", "peek", "Look at a queue's next messages."),
    "cancel": CommandLocation(
        f"{_HERE}.cancel", "cancel", "Remove a message that was not delivered yet."
    ),
    "kv": CommandLocation(f"{_HERE}.kv", "kv", "Read and write the cluster's hash table."),
    "backup": CommandLocation(
        f"{_HERE}.backup", "backup", "Copy queues or all of a cluster to a file."
    ),
    "restore": CommandLocation(
        f"{_HERE}.backup", "restore", "Put a backup back, into any cluster."
    ),
    "status": CommandLocation(f"{_HERE}.status", "status", "Show a node's own figures."),
    "mpi-gateway": CommandLocation(
        f"{_HERE}.mpi_gateway", "mpi_gateway", "Join the ranks of an MPI job to queues."
    ),
    "top": CommandLocation(f"{_HERE}.top", "top", "Watch queues and nodes, live."),
    "bench": CommandLocation(f"{_HERE}.bench.command", "bench", "Measure this node, now."),
    "token": CommandLocation(
        "weft.server.security.token_command", "token", "Make, list and revoke tokens."
    ),
    "tls": CommandLocation(f"{_HERE}.tls", "tls", "Make certificates for nodes and clients."),
    "doctor": CommandLocation(
        f"{_HERE}.doctor.command", "doctor", "Say what is wrong, and what to do."
    ),
}

_EPILOG: Final = """\b
Examples:
  weft serve                             run a node
  weft queue create orders               make a queue
  weft push orders 'hello'               put a message into it
  weft pop orders                        take it out again
  weft queue list --json | jq .

\b
Completion, for bash (zsh and fish likewise):
  eval "$(_WEFT_COMPLETE=bash_source weft)"
"""


class Root(click.Group):
    """The group of all commands. Whatever a command raises ends here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module = extras.load(place.module)
        found = getattr(module, place.name)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.short_help) for name, place in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=place.short_help)
            for name, place in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "weft",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        code = self._run(words, prog_name or "weft", complete_var, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(
        self, words: list[str], prog_name: str, complete_var: str | None, extra: dict[str, Any]
    ) -> int:
        as_json = "--json" in words[: words.index("--")] if "--" in words else "--json" in words
        try:
            # A command says its exit code with `context.exit` or, the server's, by returning it.
            code = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
            return code if isinstance(code, int) else 0
        except failure.CommandFailed:
            return failure.FAILED
        except WeftError as error:
            return failure.show(error, as_json=as_json)
        except ModuleNotFoundError as error:
            told = extras.explain(error)
            if not isinstance(told, WeftError):
                raise
            return failure.show(told, as_json=as_json)
        except OSError as error:
            return failure.show_os(error, as_json=as_json)
        except click.ClickException as error:
            return failure.show_usage(error, as_json=as_json)
        except click.Abort as error:
            # click makes this of an interrupt, and of an input that ended at a question.
            interrupted = not isinstance(error.__context__, EOFError)
            return failure.INTERRUPTED if interrupted else failure.FAILED


def _show_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(f"weft {importlib.import_module('weft').__version__}")
        context.exit()


@click.group(
    "weft", cls=Root, epilog=_EPILOG, context_settings={"help_option_names": ["--help", "-h"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@options.at_the_root
@click.pass_context
def cli(context: click.Context) -> None:
    """Weft, a durable message queue woven over all your machines.

    Exit code 0: done; 1: the operation failed; 2: the command was not understood; 3: nothing there
    (`weft pop` on an empty queue, `weft cancel` of a message that is not there).
    """
    if context.invoked_subcommand == "serve":
        for name in ("servers", "timeout_ms", "json"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                flag = "--" + name.replace("_", "-")
                raise click.UsageError(f"{flag} is for clients: `weft serve` runs a node.", context)


def main() -> None:
    """The entry point of the installed command."""
    if "serve" not in sys.argv[1:2]:
        # gRPC writes every failed handshake to standard error, between the lines of a command's own
        # error and into its JSON. A node keeps that log.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    cli.main()


if __name__ == "__main__":
    main()
