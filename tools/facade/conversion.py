"""The synchronous form of code: a class of coroutines becomes a class of plain methods.

Two rules make a method:

| source | synchronous method |
|---|---|
| a coroutine of a core | `return run(self._core.method(arguments))`: the same coroutine, one step |
| a method of an asyncio class | the same body without `async` and `await` |
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Final

from .docstring import Docstrings
from .source import Source
from .targets import NAMES, Facade

Function = ast.FunctionDef | ast.AsyncFunctionDef

_METHODS: Final = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
}


class CodeConverter(ast.NodeTransformer):
    """Converts bodies and signatures; the names of `NAMES` get their synchronous counterparts."""

    def __init__(self, facade: Facade) -> None:
        self._facade = facade
        self.used: set[str] = set()

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, ast.stmt):
            head = ast.unparse(node).partition("\n")[0]
            if head in self._facade.statements:
                self.used.add(head)
                return ast.parse(self._facade.statements[head]).body
        made: ast.AST | list[ast.stmt] = super().visit(node)
        return made

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        fields = {name: getattr(node, name) for name in node._fields}
        return self.visit_FunctionDef(ast.copy_location(ast.FunctionDef(**fields), node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = _METHODS.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        text = ast.unparse(node.value)
        value = self._expression(node.value)
        for start, wait in self._facade.waits.items():
            if text.startswith(start):
                self.used.add(start)
                return ast.Call(ast.parse(wait, mode="eval").body, [value], [])
        return value

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        raise ValueError(f"line {node.lineno}: `async for` needs an entry in `statements`")

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        raise ValueError(f"line {node.lineno}: `async with` needs an entry in `statements`")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(NAMES.get(node.id, node.id), node.ctx), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "Awaitable":
            return self._expression(node.slice)
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """A synchronous caller has no async iterable."""
        if _is_async_iterable(node.right):
            return self._expression(node.left)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Producers, consumers and workers use the core, not the facade."""
        self.generic_visit(node)
        if self._facade.core:
            node.args = [_core() if _is_self(argument) else argument for argument in node.args]
        return node

    def _expression(self, node: ast.expr) -> ast.expr:
        made = self.visit(node)
        assert isinstance(made, ast.expr)
        return made


class CoreReader(ast.NodeTransformer):
    """Reads attributes of `self` from the core, in a method copied from the core."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if _is_self(node.value):
            node.value = _core()
        return node


class FacadeBuilder:
    """Makes the definition of one facade."""

    def __init__(self, facade: Facade, docstrings: Docstrings) -> None:
        self._facade = facade
        self._docstrings = docstrings
        self._code = CodeConverter(facade)
        self.sources: list[Source] = []

    def build(self) -> ast.stmt:
        facade = self._facade
        source = self._load(facade.source) if facade.source else None
        if isinstance(source, Function):
            return self._converted(source, 0)
        core = self._load(facade.core) if facade.core else None
        assert source is None or isinstance(source, ast.ClassDef)
        assert core is None or isinstance(core, ast.ClassDef)
        cores = self._with_bases(core) if core is not None else []
        described = source or core
        assert described is not None, f"{facade.name} has no source"
        methods = [
            *(method for each in cores for method in self._from_core(each, source)),
            *(self._from_source(source) if source else ()),
        ]
        methods.sort(key=lambda method: method.name != "__init__")
        made = ast.ClassDef(facade.name, [], [], [*self._docstring(described, 4), *methods], [])
        if facade.base:
            made.bases = [ast.Name(facade.base)]
        elif not core:
            made.bases, made.keywords = described.bases, described.keywords
        self._check()
        return made

    def _load(self, name: str) -> ast.ClassDef | Function:
        module, _, definition = name.partition(":")
        self.sources.append(Source(f"weft.client.{module}"))
        return self.sources[-1].definition(definition)

    def _with_bases(self, core: ast.ClassDef) -> list[ast.ClassDef]:
        """Returns the core, and after it the classes of the client that the core is made of."""
        found, homes = [core], self.sources[-1].homes()
        for base in core.bases:
            name = base.value if isinstance(base, ast.Subscript) else base
            assert isinstance(name, ast.Name)
            module, original = homes[name.id]
            if module.startswith("weft.client."):
                made = self._load(f"{module.removeprefix('weft.client.')}:{original}")
                assert isinstance(made, ast.ClassDef)
                found += self._with_bases(made)
        return found

    def _check(self) -> None:
        unused = {*self._facade.statements, *self._facade.waits} - self._code.used
        assert not unused, f"{self._facade.name}: the source has no {sorted(unused)}"

    # --- methods of the asyncio class ---

    def _from_source(self, source: ast.ClassDef) -> Iterator[ast.FunctionDef]:
        for method in source.body:
            if isinstance(method, Function) and method.name not in self._facade.omitted:
                yield self._converted(method, 8)

    def _converted(self, function: Function, indent: int) -> ast.FunctionDef:
        made = self._visited(function)
        if indent == 0:
            self._check()
        body = made.body[1:] if ast.get_docstring(function) else made.body
        made.body = [*self._docstring(function, indent or 4), *body]
        return made

    def _visited(self, function: Function) -> ast.FunctionDef:
        made = self._code.visit(copy.deepcopy(function))
        assert isinstance(made, ast.FunctionDef)
        return made

    # --- methods of the core ---

    def _from_core(
        self, core: ast.ClassDef, source: ast.ClassDef | None
    ) -> Iterator[ast.FunctionDef]:
        has_init = source is not None and any(
            isinstance(method, Function) and method.name == "__init__" for method in source.body
        )
        for method in core.body:
            if not isinstance(method, Function) or method.name in self._facade.omitted:
                continue
            if method.name == "__init__":
                if not has_init:
                    yield self._init(core, method)
                yield from self._attributes(method)
            elif method.name == "__repr__":
                yield CoreReader().visit(copy.deepcopy(method))
            elif not method.name.startswith("_"):
                yield self._forward(method)

    def _init(self, core: ast.ClassDef, method: Function) -> ast.FunctionDef:
        call = ast.Call(ast.Name(core.name), _positional(method), [])
        return _with_body(self._visited(method), [ast.Assign([_core()], call)])

    def _attributes(self, init: Function) -> Iterator[ast.FunctionDef]:
        """Makes a property of each public attribute that the core's constructor sets."""
        types = {each.arg: each.annotation for each in init.args.args}
        for statement in init.body:
            for target in ast.walk(statement):
                if not isinstance(target, ast.Attribute) or not isinstance(target.ctx, ast.Store):
                    continue
                if target.attr.startswith("_") or target.attr in self._facade.omitted:
                    continue
                if isinstance(statement, ast.AnnAssign):
                    types[target.attr] = statement.annotation
                text = self.sources[-1].comment_above(statement)
                yield self._property(target.attr, types[target.attr], text)

    def _property(self, name: str, type_: ast.expr | None, text: str) -> ast.FunctionDef:
        made = ast.parse(f"@property\ndef {name}(self): return self._core.{name}").body[0]
        assert isinstance(made, ast.FunctionDef)
        made.returns = type_
        if text:
            made.body.insert(0, ast.Expr(ast.Constant(self._docstrings.convert(text, 8))))
        return made

    def _forward(self, method: Function) -> ast.FunctionDef:
        made = self._visited(method)
        docstring = self._docstring(method, 8)
        value: ast.expr = ast.Attribute(_core(), method.name)
        if not method.decorator_list:
            named = [ast.keyword(each.arg, ast.Name(each.arg)) for each in method.args.kwonlyargs]
            value = ast.Call(value, _positional(method), named)
        if isinstance(method, ast.AsyncFunctionDef):
            value = ast.Call(ast.Name("run"), [value], [])
        answers_none = isinstance(made.returns, ast.Constant) and made.returns.value is None
        last = ast.Expr(value) if answers_none else ast.Return(value)
        return _with_body(made, [*docstring, *_checks(method), last])

    def _docstring(self, node: ast.ClassDef | Function, indent: int) -> list[ast.stmt]:
        text = ast.get_docstring(node)
        if not text:
            return []
        return [ast.Expr(ast.Constant(self._docstrings.convert(text, indent)))]


def _checks(method: Function) -> Iterator[ast.stmt]:
    """Refuses an async iterable, which the core accepts, before the coroutine is created."""
    for each in method.args.args:
        if isinstance(each.annotation, ast.BinOp) and _is_async_iterable(each.annotation.right):
            name = each.arg
            yield from ast.parse(f"arguments.check_iterable({name!r}, {name}, 'bytes')").body


def _with_body(function: ast.FunctionDef, body: list[ast.stmt]) -> ast.FunctionDef:
    function.body = body
    return function


def _positional(method: Function) -> list[ast.expr]:
    return [ast.Name(each.arg) for each in method.args.args[1:]]


def _core() -> ast.Attribute:
    return ast.Attribute(ast.Name("self"), "_core")


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_async_iterable(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "AsyncIterable"
    )
