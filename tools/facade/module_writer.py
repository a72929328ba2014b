"""Puts generated definitions together to modules: docstring, imports, code, in the usual format."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator

from .conversion import FacadeBuilder
from .docstring import LINE_MAX, Docstrings
from .source import ROOT, Home
from .targets import EXAMPLES, HOMES, SENTENCES, TARGETS, Target

__all__ = ["ROOT", "generate"]


def generate() -> dict[str, str]:
    """Returns the text of every generated module, by its path in the repository."""
    docstrings = Docstrings()
    made = {}
    for target in TARGETS:
        path = "client/" + target.module.replace(".", "/") + ".py"
        made[path] = _formatted(_module(target, docstrings), path)
    unused = {*SENTENCES, *EXAMPLES} - docstrings.used
    assert not unused, f"no docstring has {sorted(unused)}"
    return made


def _module(target: Target, docstrings: Docstrings) -> str:
    builders = [FacadeBuilder(facade, docstrings) for facade in target.facades]
    made = [ast.fix_missing_locations(builder.build()) for builder in builders]
    code = "\n".join(map(ast.unparse, made))
    sources = [source for builder in builders for source in builder.sources]
    homes: dict[str, Home] = {}
    for source in reversed(sources):
        homes |= source.homes()
    homes |= {name: (f"weft.client.{module}", name) for name, module in HOMES.items()}
    for facade in target.facades:
        homes.pop(facade.name, None)
    imports = _imports(
        set(_free_names(ast.parse(code).body)), homes, f"weft.client.{target.module}"
    )
    *paths, last = dict.fromkeys(f"`{source.path}`" for source in sources)
    named = f"{', '.join(paths)} and {last}" if paths else last
    origin = f"`make facade` generates this module from {named}: do not edit it."
    docstring = f'"""{target.summary}\n\n{textwrap.fill(origin, LINE_MAX)}\n"""'
    return "\n".join([docstring, "from __future__ import annotations", *imports, code])


def _imports(names: Iterable[str], homes: dict[str, Home], module: str) -> Iterator[str]:
    package = module.rpartition(".")[0]
    for name in sorted(names):
        if name not in homes:
            continue
        home, original = homes[name]
        if home.startswith(package + "."):  # inside a package imports are relative
            home = home.removeprefix(package)
        elif home == package:
            home = "."
        renamed = original if original == name else f"{original} as {name}"
        yield f"from {home} import {renamed}" if home else f"import {renamed}"


def _free_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yields the names read and not bound by an enclosing function."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            yield from _free_names_of(node)
        elif isinstance(node, ast.Name):
            yield node.id
        else:
            yield from _free_names(ast.iter_child_nodes(node))


def _free_names_of(function: ast.FunctionDef) -> Iterator[str]:
    walked = [node for statement in function.body for node in ast.walk(statement)]
    bound = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    bound |= {
        node.id for node in walked if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    yield from _free_names([function.args, *function.decorator_list])
    yield from _free_names([function.returns] if function.returns else [])
    yield from (name for name in _free_names(function.body) if name not in bound)


def _formatted(text: str, path: str) -> str:
    """Sorts the imports and formats the code, as `make fmt` does."""
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", path, "-"]
        done = subprocess.run(
            ruff, cwd=ROOT, input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"ruff cannot read the generated {path}:\n{done.stderr}\n{text}")
        text = done.stdout
    return text
