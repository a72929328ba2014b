"""The page of a node's settings, from `server/config.py` and the comments of `docs/weft.toml`."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from weft.server.config import FIELDS, environment_name

from .markdown import code, page, table

SAMPLE = Path(__file__).parents[1] / "weft.toml"
INTRODUCTION = """\
A node's settings. A setting has one name: `grace_ms` is the key in the TOML file (`weft serve
--config weft.toml`, or `WEFT_CONFIG`), `--grace-ms` the flag and `WEFT_GRACE_MS` the environment
variable. A flag wins over the environment, the environment over the file, and the file over the
default. An unknown key in the file is an error.

Settings of a queue (lease, dead letters, retention, dedup window) are arguments of
[`create_queue`](python/client.md) and options of
[`weft queue create`](cli.md#weft-queue-create)."""
WHOLE = """\
## The whole file

[docs/weft.toml](../weft.toml) has every setting with its default:

```{literalinclude} ../weft.toml
:language: toml
```"""
_KINDS = {str: "text", int: "whole number", bool: "true or false"}
_SETTING = re.compile(r"#(\w+) = ")


def render() -> str:
    texts = comments()
    rows = ((f"[`{name}`](#{name})", code(_default(FIELDS[name])), _first(texts[name]))
            for name in FIELDS)  # fmt: skip
    parts = [INTRODUCTION, table(("setting", "default", "in short"), rows), "## Each setting"]
    for name, field in FIELDS.items():
        parts += [f"### {name}", texts[name], _facts(field)]
    return page("Settings", "server/config.py and docs/weft.toml", [*parts, WHOLE])


def comments() -> dict[str, str]:
    """The comment above each setting of the sample file; settings without one share the last."""
    found: dict[str, str] = {}
    lines: list[str] = []
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        if setting := _SETTING.match(line):
            found[setting[1]] = "\n".join(lines)
        elif line.startswith("# "):
            lines.append(line.removeprefix("# "))
        else:
            lines = []
    return found


def _facts(field: dataclasses.Field[Any]) -> str:
    flag = "--" + field.name.replace("_", "-")
    if isinstance(field.default, bool):
        flag += f"`, `--no-{field.name.replace('_', '-')}"
    values = [code(json.dumps(each)) for each in field.metadata["choices"]]
    kind = " or ".join(values) or _KINDS[type(field.default)]
    return (
        f"- default: {code(_default(field))}\n- value: {kind}\n- flag: {code(flag)}\n"
        f"- environment: {code(environment_name(field.name))}"
    )


def _default(field: dataclasses.Field[Any]) -> str:
    return json.dumps(field.default)


def _first(text: str) -> str:
    """The first sentence of a comment, or the part before its colon list."""
    return re.split(r"(?<=[^.]\.)\s", " ".join(text.split()))[0]
