"""Documents are plain prose in short lines; their links, paths and commands exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from tests import markdown, prose
from tests.markdown import ROOT, Page
from weft.client.cli.main import cli

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
LINE_MAX = 120
#: Words per 100 that leave the actor open; measured by `python -m tests.prose`.
VAGUE_MAX, PRONOUNS_MAX = 0.3, 5.0
#: The folders whose messages users read.
SHIPPED = {"client", "dht", "mpsc", "persistence", "proto", "server", "spark", "transport", "weft"}
#: Below this a rate says nothing.
WORDS_MIN = 200
MODULE_FILE = re.compile(r"[\w*-]+\.py")
MODULE = re.compile(r"-m ((?:bench|docs|tests|tools|weft)\b[\w.]*)")
MAKE = re.compile(r"\bmake ([a-z][\w-]*)")
COMMAND = re.compile(r"^(?:\w+\$ |\$ )?(?:\.venv/bin/)?weft (.+)$")


def pages() -> list[Page]:
    return markdown.pages() or pytest.skip("this is not a git checkout")


def code(page: Page) -> list[str]:
    """Everything that a page sets as code: spans, and lines of blocks."""
    return [*page.code_spans(), *(line for _, line in page.blocks)]


@cache
def file_names() -> set[str]:
    return {path.name for top in top_folders() for path in (ROOT / top).rglob("*.*")}


@cache
def top_folders() -> tuple[str, ...]:
    return tuple(
        path.name for path in sorted(ROOT.iterdir())
        if path.is_dir() and not path.name.startswith((".", "build")) and "egg" not in path.name
    )  # fmt: skip


def test_links_lead_somewhere() -> None:
    for page in pages():
        for target in LINK.findall(page.path.read_text(encoding="utf-8")):
            if "://" not in target and not target.startswith("mailto:"):
                assert (page.path.parent / target).exists(), f"{page.name}: {target}"


def missing_path(word: str) -> bool:
    """Whether a word of code names a path of the repository that does not exist.

    A Python file without a folder must exist in some folder.
    """
    word = word.split("::")[0].strip(".,;:()'\"").rstrip("/")
    if word.split("/")[0] in top_folders() and "/" in word:
        return not any(ROOT.glob(word))
    if MODULE_FILE.fullmatch(word):
        return not any(Path(name).match(word) for name in file_names())
    return False


@pytest.mark.parametrize(
    ("word", "missing"),
    [
        ("tests/sim/check.py", False),
        ("tests/sim/no_such.py", True),
        ("client/**/sync_*.py", False),
        ("tests/nowhere", True),
        ("commit_wait.py", False),
        ("no_such_module.py", True),
        ("push/pop", False),
    ],
)
def test_a_missing_path_is_found(word: str, missing: bool) -> None:
    assert missing_path(word) is missing


def test_paths_that_are_named_exist() -> None:
    """Except programs of the reader, which a block of the same page runs."""
    wrong = []
    for page in pages():
        run = {word for _, line in page.blocks for word in line.split()}
        words = {word for span in page.code_spans() for word in span.split()}
        wrong += [f"{page.name}: {word}" for word in words - run if missing_path(word)]
    assert not wrong


def test_modules_and_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in pages():
        for text in code(page):
            for module in MODULE.findall(text):
                path = ROOT / module.replace(".", "/")
                assert path.is_dir() or path.with_suffix(".py").is_file(), f"{page.name}: {text}"
            assert set(MAKE.findall(text)) <= targets, f"{page.name}: {text}"


def weft_commands(page: Page) -> Iterator[str]:
    for text in code(page):
        found = COMMAND.match(text.strip())
        if found and "..." not in found[1]:
            yield found[1].split("#")[0]


def unknown_option(words: list[str]) -> str:
    """The first word of a `weft` command line that the command does not know; empty if none."""
    command: click.Command = cli
    context = click.Context(cli)
    while words:
        word = words.pop(0)
        if word == "--":
            return ""
        if word.startswith("-") and len(word) > 1:
            name = word.split("=")[0]
            known = {
                o: p for p in command.get_params(context) for o in (*p.opts, *p.secondary_opts)
            }
            if name not in known:
                return word
            option = known[name]
            if "=" not in word and not (isinstance(option, click.Option) and option.is_flag):
                del words[:1]
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None:
                return word
            command, context = found, click.Context(found, parent=context)
    return ""


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("cluster status --wait settled", ""),
        ("-s 127.0.0.1:7700 cluster recover --lost 3f2a --accept-data-loss", ""),
        ("mpi-gateway --queue events -- python simulate.py --samples 3", ""),
        ("cluster forget", "forget"),
        ("queue purge orders --surely", "--surely"),
    ],
)
def test_an_unknown_option_is_found(line: str, unknown: str) -> None:
    assert unknown_option(line.split()) == unknown


def test_commands_and_options_that_are_printed_exist() -> None:
    wrong = []
    for page in pages():
        for line in weft_commands(page):
            alternatives = line.split()[0].split("|")
            if len(alternatives) > 1 or "|" in line.split("'")[0]:
                continue
            unknown = unknown_option(shlex.split(line))
            if unknown:
                wrong.append(f"{page.name}: weft {line} ({unknown})")
    assert not wrong


def test_every_decision_has_its_headings_and_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    for path in sorted(folder.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        for heading in ("Context", "Decision", "Rejected"):
            assert f"\n## {heading}\n" in text, f"{path.name} lacks {heading}"
        assert f"({path.name}) | {text.splitlines()[0].removeprefix('# ')} |" in listed, path.name


def test_a_page_is_split_into_prose_tables_and_code(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "See [a page](" + "x" * LINE_MAX + ") and `code\nacross lines`.\n"
        "| who | " + "x" * LINE_MAX + " |\n```\nwhat\n```\n"
        "<!-- results: begin -->\nwhoever\n<!-- results: end -->\n"
        "It says who " + "x" * LINE_MAX + "\n",
        encoding="utf-8",
    )
    page = markdown.read(path)
    assert page.long_lines(LINE_MAX) == [10]
    assert page.code_spans() == ["code across lines"]
    assert page.blocks == [(5, "what")]
    counts = prose.count([page.text()])
    assert (counts.vague, counts.pronouns) == (1, 1)


def test_lines_are_short() -> None:
    wrong = [f"{page.name}:{n}" for page in pages() for n in page.long_lines(LINE_MAX)]
    assert not wrong, f"longer than {LINE_MAX} characters: {wrong}"


@pytest.mark.parametrize("source", ["documents", "code"])
def test_prose_names_its_actors(source: str) -> None:
    assert markdown.pages() or pytest.skip("this is not a git checkout")
    groups = prose.documents() if source == "documents" else prose.code(prose.measured())
    assert len(groups) > 5
    for name, counts in groups.items():
        if counts.words >= WORDS_MIN:
            assert counts.vague_rate < VAGUE_MAX, f"{name}: {counts.vague_rate:.2f} per 100"
            assert counts.pronoun_rate < PRONOUNS_MAX, f"{name}: {counts.pronoun_rate:.2f} per 100"


def test_messages_name_their_actors() -> None:
    """Errors, log lines, help texts, docstrings: every text of several words that users read."""
    assert markdown.pages() or pytest.skip("this is not a git checkout")
    unnamed = re.compile(r"\b(?:who|whoever|(?:some|any|every|no)(?:body|one))\b", re.IGNORECASE)
    files = [path for path in prose.tracked() if path.relative_to(ROOT).parts[0] in SHIPPED]
    assert len(files) > 300
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if " " in node.value and unnamed.search(re.sub("`[^`]*`", "", node.value))
    ]
    assert not wrong, wrong
