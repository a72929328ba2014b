"""How plain the prose is: ``python -m tests.prose [--json] [--worst N]``.

Counts words of comments and docstrings, in the tree that git tracks, and words of the documents
(prose only: no tables, code and generated pages). Two rates show whether a sentence names its
actor: *vague subjects* (`who`, `what`, `somebody` where a noun belongs) and *pronouns*, both per
100 words. Test names are sentences on purpose and are not counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from . import markdown

ROOT: Final = Path(__file__).resolve().parent.parent
VAGUE: Final = frozenset(
    ["who", "whoever", "whom", "whose", "what", "whatever", "somebody", "someone", "nobody"]
)
PRONOUNS: Final = frozenset(
    [
        "it",
        "its",
        "itself",
        "he",
        "him",
        "his",
        "she",
        "her",
        "they",
        "them",
        "their",
        "theirs",
        "themselves",
        "this",
        "that",
        "these",
        "those",
        "we",
        "us",
        "our",
    ]
)
_WORD: Final = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_CODE: Final = re.compile(r"``[^`]*``|`[^`]*`|\*\*")


class Prose(NamedTuple):
    """Word counts of some text; rates are per 100 words."""

    words: int
    vague: int
    pronouns: int

    @property
    def vague_rate(self) -> float:
        return 100 * self.vague / max(1, self.words)

    @property
    def pronoun_rate(self) -> float:
        return 100 * self.pronouns / max(1, self.words)

    def plus(self, other: Prose) -> Prose:
        return Prose(*(a + b for a, b in zip(self, other, strict=True)))


def texts(source: str) -> Iterator[str]:
    """The comments and docstrings of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#:! ")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def measure(source: str) -> Prose:
    return count(texts(source))


def count(parts: Iterable[str]) -> Prose:
    words = Counter[str]()
    for text in parts:
        words.update(word.lower() for word in _WORD.findall(_CODE.sub(" ", text)))
    vague = sum(words[word] for word in VAGUE)
    return Prose(words.total(), vague, sum(words[word] for word in PRONOUNS))


def tracked() -> list[Path]:
    """The Python files of the project, without generated ones."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in listed if "_pb2" not in name]


def measured() -> dict[Path, Prose]:
    """The counts of the comments and docstrings of each file."""
    return {path: measure(path.read_text(encoding="utf-8")) for path in tracked()}


def code(files: Mapping[Path, Prose]) -> dict[str, Prose]:
    """The counts of the comments and docstrings of each top-level folder."""
    folders: dict[str, Prose] = {}
    for path, prose in files.items():
        top = path.relative_to(ROOT).parts[0]
        folders[top] = folders.get(top, Prose(0, 0, 0)).plus(prose)
    return folders


def group(name: str) -> str:
    """The row of a document: README, docs, decisions, how-to, or its folder."""
    folders = Path(name).parts[:-1]
    if name == "README.md":
        return "README"
    return folders[1] if len(folders) > 1 and folders[0] == "docs" else (*folders, "top level")[0]


def documents() -> dict[str, Prose]:
    """The counts of each group of documents."""
    groups: dict[str, Prose] = {}
    for page in markdown.pages():
        row = group(page.name)
        groups[row] = groups.get(row, Prose(0, 0, 0)).plus(count([page.text()]))
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--worst", type=int, default=0, help="also list the N vaguest files")
    arguments = parser.parse_args()
    files = measured()
    tables = {"code": code(files), "documents": documents()}
    if arguments.json:
        rows = {title: _with_total(table) for title, table in tables.items()}
        printed = {t: {name: _row(prose) for name, prose in row} for t, row in rows.items()}
        print(json.dumps(printed, indent=1))
        return
    for title, table in tables.items():
        print(f"{title:<14}{'words':>8}{'vague/100':>12}{'pronouns/100':>14}")
        for name, prose in _with_total(table):
            rates = f"{prose.vague_rate:>12.2f}{prose.pronoun_rate:>14.2f}"
            print(f"{name:<14}{prose.words:>8}{rates}")
        print()
    counted = {path.relative_to(ROOT).as_posix(): prose for path, prose in files.items()}
    counted |= {page.name: count([page.text()]) for page in markdown.pages()}
    for name in sorted(counted, key=lambda name: -counted[name].vague)[: arguments.worst]:
        print(f"{counted[name].vague:>5} vague words  {name}")


def _with_total(table: dict[str, Prose]) -> list[tuple[str, Prose]]:
    total = Prose(0, 0, 0)
    for prose in table.values():
        total = total.plus(prose)
    return [*sorted(table.items()), ("total", total)]


def _row(prose: Prose) -> dict[str, float]:
    return {
        "words": prose.words,
        "vague_per_100": round(prose.vague_rate, 2),
        "pronouns_per_100": round(prose.pronoun_rate, 2),
    }


if __name__ == "__main__":
    main()
