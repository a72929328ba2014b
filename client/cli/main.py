"""The `weft` command: the table of subcommands, lazy loading, and exit codes for errors.

Subcommands are imported on first use for two reasons: `weft push` must not pay for the imports of
`weft bench`, and `weft serve` belongs to the server package, which the client never imports and
which may not be installed.
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
    """The module and attribute of a subcommand, and the short help in the list of commands."""

    module: str
    name: str
    short_help: str


_HERE: Final = "weft.client.cli"
COMMANDS: Final[dict[str, CommandLocation]] = {
    "serve": CommandLocation("weft.server.serve_command", "serve", "Run a node on this machine."),
    "cluster": CommandLocation(
        f"{_HERE}.cluster.command", "cluster", "Start, inspect, shrink and recover a cluster."
    ),
    "queue": CommandLocation(
        f"{_HERE}.queue", "queue", "Create, list, show, update, purge and delete queues."
    ),
    "topic": CommandLocation(
        f"{_HERE}.topic", "topic", "Create, bind, list, show and delete topics."
    ),
    "subscription": CommandLocation(
        f"{_HERE}.subscription", "subscription", "List, show, release and delete subscriptions."
    ),
    "push": CommandLocation(f"{_HERE}.push", "push", "Push messages to a queue."),
    "multicast": CommandLocation(
        f"{_HERE}.multicast", "multicast", "Push one message to several queues, all or none."
    ),
    "call": CommandLocation(
        f"{_HERE}.call", "call", "Push a question to a queue and print the answer."
    ),
    "reply": CommandLocation(f"{_HERE}.call", "reply", "Answer the questions of a queue."),
    "pop": CommandLocation(
        f"{_HERE}.pop", "pop", "Pop messages from a queue, print the bodies and ack."
    ),
    "peek": CommandLocation(f"{_HERE}.peek", "peek", "Show a queue's next messages."),
    "cancel": CommandLocation(
        f"{_HERE}.cancel", "cancel", "Remove an undelivered message from a queue."
    ),
    "kv": CommandLocation(f"{_HERE}.kv", "kv", "Read and write the cluster's hash table."),
    "backup": CommandLocation(
        f"{_HERE}.backup", "backup", "Copy a cluster, or some queues, to a file."
    ),
    "restore": CommandLocation(f"{_HERE}.backup", "restore", "Restore queues from a backup file."),
    "status": CommandLocation(f"{_HERE}.status", "status", "Show the status of one node."),
    "mpi-gateway": CommandLocation(
        f"{_HERE}.mpi_gateway", "mpi_gateway", "Connect the ranks of an MPI job to queues."
    ),
    "top": CommandLocation(f"{_HERE}.top", "top", "Show live rates of queues and nodes."),
    "bench": CommandLocation(
        f"{_HERE}.bench.command", "bench", "Measure throughput and latency of a node."
    ),
    "model": CommandLocation(
        f"{_HERE}.model.command", "model", "Compute and simulate the models of the papers."
    ),
    "tasks": CommandLocation(
        "weft.tasks.tasks_command", "tasks", "Show, cancel and retry tasks, and show workers."
    ),
    "worker": CommandLocation("weft.tasks.worker_command", "worker", "Run the tasks of an app."),
    "provision": CommandLocation(
        "weft.tasks.provisioner.provision_command",
        "provision",
        "Start and stop workers as the load of an app asks.",
    ),
    "run": CommandLocation(
        "weft.tasks.mapreduce.run_command", "run", "Run map-reduce on workers, or on Spark."
    ),
    "token": CommandLocation(
        "weft.server.security.token_command", "token", "Create, list and revoke tokens."
    ),
    "tls": CommandLocation(f"{_HERE}.tls", "tls", "Create certificates for nodes and clients."),
    "doctor": CommandLocation(
        f"{_HERE}.doctor.command", "doctor", "Check machine and nodes, and advise on problems."
    ),
}

_EPILOG: Final = """\b
Examples:
  weft serve                             run a node
  weft queue create orders               create a queue
  weft push orders 'hello'               push a message
  weft pop orders                        pop and ack the message
  weft queue list --json | jq .

\b
Shell completion, for bash (replace bash by zsh or fish):
  eval "$(_WEFT_COMPLETE=bash_source weft)"
"""


class Root(click.Group):
    """The group of all subcommands; turns every exception of a subcommand into an exit code."""

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
            # Client commands set an exit code with `context.exit`; `weft serve` returns one.
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
            # click raises Abort for Ctrl-C and also for end of input at a confirmation prompt.
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
    """Weft, a durable message queue on one machine or many.

    Exit code 0: success; 1: the operation failed; 2: invalid usage; 3: no message (`weft pop` on an
    empty queue, `weft cancel` of an absent message).
    """
    if context.invoked_subcommand == "serve":
        for name in ("servers", "timeout_ms", "json"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                flag = "--" + name.replace("_", "-")
                raise click.UsageError(
                    f"{flag} is an option of clients: `weft serve` runs a node. Leave {flag} out.",
                    context,
                )


def main() -> None:
    """The entry point of the installed command."""
    if "serve" not in sys.argv[1:2]:
        # gRPC logs every failed handshake to standard error, which would corrupt a command's error
        # lines and JSON. A node keeps gRPC's log.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    cli.main()


if __name__ == "__main__":
    main()
