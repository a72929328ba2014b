"""The global options: --servers, --timeout-ms and --json, before or after the subcommand.

`weft -s HOST queue list` and `weft queue list -s HOST` are equivalent; if both positions are used,
the option after the subcommand wins. Values live in `context.meta`, which click shares between a
group and the subcommands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from weft import limits

if TYPE_CHECKING:
    from weft import Client

F = TypeVar("F", bound=Callable[..., Any])

_SERVERS: Final = "weft.servers"
_TIMEOUT_MS: Final = "weft.timeout_ms"
_JSON: Final = "weft.json"
#: Upper bound of the connect timeout, so that a command against an absent node fails quickly.
CONNECT_MS_MAX: Final = 2_000


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value not in (None, False):
        context.meta[f"weft.{parameter.name}"] = value


def everywhere(function: F) -> F:
    """Adds the three global options to a subcommand."""
    return _add(function, environment=False)


def at_the_root(function: F) -> F:
    """Adds the global options to `weft` itself, where environment variables are read too."""
    return _add(function, environment=True)


def _add(function: F, *, environment: bool) -> F:
    servers = click.option(
        "--servers",
        "-s",
        metavar="HOST:PORT,...",
        envvar="WEFT_SERVERS" if environment else None,
        show_envvar=environment,
        expose_value=False,
        callback=_remember,
        help="gRPC addresses of one or more nodes of the cluster.  [default: 127.0.0.1:7700]",
    )
    timeout = click.option(
        "--timeout-ms",
        type=click.IntRange(min=1),
        envvar="WEFT_TIMEOUT_MS" if environment else None,
        show_envvar=environment,
        expose_value=False,
        callback=_remember,
        help="Timeout of one call, in milliseconds.  [default: 30000]",
    )
    as_json = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Print output and errors as JSON.",
    )
    return servers(timeout(as_json(function)))


# click before 8.3 has no type parameter here.
class QueueName(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A queue name, validated before the command sends any request."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        limits.check_queue_name(value)
        return value


QUEUE_NAME: Final = QueueName()


def servers() -> str | None:
    """The value of --servers or WEFT_SERVERS; None if neither is set."""
    found: str | None = click.get_current_context().meta.get(_SERVERS)
    return found


def timeout_ms() -> int | None:
    found: int | None = click.get_current_context().meta.get(_TIMEOUT_MS)
    return found


def wants_json() -> bool:
    return bool(click.get_current_context().meta.get(_JSON, False))


def connect(to: str | None = None, within_ms: int | None = None) -> Client:
    """Connects a client with the global options.

    ``to`` overrides --servers, ``within_ms`` overrides --timeout-ms. Raises ConnectionLost if no
    node answers within `CONNECT_MS_MAX`.
    """
    import weft

    limit = within_ms or timeout_ms()
    given: dict[str, Any] = {} if limit is None else {"timeout_ms": limit}
    patience = min(limit or CONNECT_MS_MAX, CONNECT_MS_MAX)
    return weft.connect(to or servers(), connect_timeout_ms=patience, **given)
