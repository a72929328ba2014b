"""A module of the asyncio client, as the generator reads it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

#: (module, name in the module): where a name comes from. Without a module, the name is one itself.
Home = tuple[str, str]


class Source:
    def __init__(self, module: str) -> None:
        self.module = module
        self.path = module.removeprefix("weft.").replace(".", "/") + ".py"
        self._text = (ROOT / self.path).read_text(encoding="utf-8")
        self._tree = ast.parse(self._text, self.path)

    def definition(self, name: str) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
        for node in self._tree.body:
            kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            if isinstance(node, kinds) and node.name == name:
                return node
        raise ValueError(f"{self.path} defines no {name}")

    def comment_above(self, statement: ast.stmt) -> str:
        """Returns the `#:` comment on the line before the statement; empty if there is none."""
        line = self._text.splitlines()[statement.lineno - 2].strip()
        return line.removeprefix("#: ") if line.startswith("#: ") else ""

    def homes(self) -> dict[str, Home]:
        """Returns every name that the module imports or defines, and the origin of the name."""
        homes: dict[str, Home] = {}
        for node in self._tree.body:
            if isinstance(node, ast.Import):
                homes |= {each.asname or each.name: ("", each.name) for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = self._absolute(node)
                homes |= {each.asname or each.name: (module, each.name) for each in node.names}
            elif isinstance(node, ast.ClassDef | ast.FunctionDef):
                homes[node.name] = (self.module, node.name)
            elif isinstance(node, ast.Assign):
                targets = [each for each in node.targets if isinstance(each, ast.Name)]
                homes |= {each.id: (self.module, each.id) for each in targets}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                homes[node.target.id] = (self.module, node.target.id)
        return homes

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module.rsplit(".", node.level)[0]
        return f"{package}.{node.module}" if node.module else package
