"""The page of the command line, from the click commands of `weft`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from weft.client.cli.main import COMMANDS, cli

from .markdown import code, page, table

#: Options of nearly every command; documented once.
COMMON = ("--servers", "--timeout-ms", "--json")
INTRODUCTION = """\
`weft COMMAND --help` prints the same text. `weft`, without a command, lists the commands."""
_UNBROKEN = "\b"
#: An option in a sentence.
_FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z-]*[a-z]")


def render() -> str:
    context = click.Context(cli, info_name="weft")
    rows = ((f"[`weft {name}`](#weft-{name})", each.short_help) for name, each in COMMANDS.items())
    parts = [INTRODUCTION, table(("command", "in short"), rows), *_root()]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        parts += _command(command, f"weft {name}", "##", context)
    return page("Command line", "the click commands of client/cli and server", parts)


def _root() -> list[str]:
    options = [each for each in cli.params if isinstance(each, click.Option)]
    text = "Every command takes these options, before or after its name, except as noted."
    return ["## Common options", text, _options(options), *_prose(cli.help), *_prose(cli.epilog)]


def _command(
    command: click.Command, path: str, heading: str, parent: click.Context
) -> Iterator[str]:
    yield f"{heading} {path}"
    context = click.Context(command, parent=parent, info_name=path.rpartition(" ")[2])
    yield f"```\n{_usage(command, path)}\n```"
    yield from _prose(command.help)
    options = [each for each in command.params if isinstance(each, click.Option)]
    own = [each for each in options if each.opts[0] not in COMMON and not each.hidden]
    if own:
        yield _options(own)
    if not isinstance(command, click.Group):
        yield _common([each.opts[0] for each in options if each.opts[0] in COMMON])
    yield from _prose(command.epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _command(child, f"{path} {name}", "###", context)


def _common(names: list[str]) -> str:
    listed = ", ".join(map(code, names)) if names else "none"
    return f"[Common options](#common-options): {listed}."


def _usage(command: click.Command, path: str) -> str:
    words = [path]
    if any(isinstance(each, click.Option) for each in command.params):
        words.append("[OPTIONS]")
    words += [_argument(each) for each in command.params if isinstance(each, click.Argument)]
    if isinstance(command, click.Group):
        words.append("COMMAND")
    return " ".join(words)


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    if not argument.required and not name.startswith("["):
        name = f"[{name}]"
    return f"{name}..." if argument.nargs == -1 else name


def _options(options: list[click.Option]) -> str:
    return table(("option", "meaning"), (_option(each) for each in options))


def _option(option: click.Option) -> tuple[str, str]:
    names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
    text = _with_flags(" ".join((option.help or "").split()))
    if option.required:
        text += " Required."
    if option.multiple and "repeat" not in text.lower():
        text += " May be repeated."
    if option.show_default is True:
        text += f" [default: {option.default}]"
    if option.show_envvar:
        text += f" [{option.envvar}]"
    value = _value(option)
    return f"{names} {value}".strip(), text


def _value(option: click.Option) -> str:
    """The value's place holder after the option; empty for a flag."""
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return code(option.metavar)
    if isinstance(option.type, click.Choice):
        return code("|".join(map(str, option.type.choices)))
    return code(option.type.name.upper().removesuffix(" RANGE"))


def _prose(text: str | None) -> Iterator[str]:
    """The paragraphs of a help text; those that click must not wrap are lists of examples."""
    for part in re.split(r"\n{2,}", inspect.cleandoc(text or "")):
        if part.startswith(_UNBROKEN):
            yield from _examples(part.removeprefix(_UNBROKEN).strip("\n"))
        elif part:
            yield _with_flags(part)


def _with_flags(text: str) -> str:
    return _FLAG.sub(lambda flag: code(flag[0]), text)


def _examples(part: str) -> Iterator[str]:
    title, _, lines = part.partition("\n")
    yield title
    yield f"```bash\n{inspect.cleandoc(lines)}\n```"
