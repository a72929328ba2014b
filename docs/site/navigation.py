"""The tree of pages: which pages follow which, for the side bar of the site.

A code host would show a toctree as a block of code, so the documents have none: Sphinx adds the
trees of this module to the end of the index pages. A pattern picks up new pages by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: By index page: caption, and patterns relative to the page's folder. A page appears where the
#: first pattern that is not `*.md` names it; `*.md` stands for the other pages of the folder.
TREES: dict[str, dict[str, tuple[str, ...]]] = {
    "docs/README": {
        "Start": ("../README.md", "tutorial.md"),
        "Guides": ("workers.md", "tasks/tutorial.md", "tasks/promises.md", "tasks/workers.md",
                   "tasks/schedules.md", "tasks/graphs.md", "tasks/provisioner.md",
                   "tasks/gangs.md",
                   "tasks/map-reduce.md", "tasks/locality.md", "tasks/coming-from.md", "table.md",
                   "cluster.md",
                   "operations.md", "how-to/*.md", "spark.md", "mpi.md", "*.md",
                   "../examples/**/README.md"),
        "Reference": ("reference/README.md",),
        "Background": ("../ARCHITECTURE.md", "glossary.md", "comparison.md", "benchmarks.md",
                       "scaling.md", "reliability.md", "simulator.md", "models.md",
                       "decisions/README.md"),
        "Project": ("../SECURITY.md", "../CONTRIBUTING.md", "../CHANGELOG.md"),
    },
    "docs/reference/README": {
        "Reference": ("python/README.md", "cli.md", "settings.md", "metrics.md", "errors.md",
                      "*.md"),
    },
    "docs/reference/python/README": {
        "Python": ("client.md", "queue.md", "producer.md", "consumer.md", "message.md",
                   "worker.md", "pipeline.md", "transaction.md", "kv.md", "errors.md",
                   "testing.md", "*.md"),
    },
    "docs/decisions/README": {"Decisions": ("*.md",)},
}  # fmt: skip
REST = "*.md"


def toctrees(docname: str) -> str:
    """The toctree directives of an index page; empty for any other page."""
    return "\n".join(
        _toctree(caption, pages) for caption, pages in _sections(docname) if pages
    )  # fmt: skip


def _sections(docname: str) -> Iterator[tuple[str, list[str]]]:
    index = ROOT / f"{docname}.md"
    folder = index.parent
    trees = TREES.get(docname, {})
    named = [each for patterns in trees.values() for each in patterns if each != REST]
    elsewhere = {page for pattern in named for page in _found(folder, pattern)} | {index}
    for caption, patterns in trees.items():
        pages: list[str] = []
        for pattern in patterns:
            found = _found(folder, pattern)
            kept = [page for page in found if pattern != REST or page not in elsewhere]
            pages += ["/" + page.relative_to(ROOT).with_suffix("").as_posix() for page in kept]
        yield caption, pages


def _found(folder: Path, pattern: str) -> list[Path]:
    while pattern.startswith("../"):
        folder, pattern = folder.parent, pattern.removeprefix("../")
    return sorted(folder.glob(pattern))


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(
        ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]
    )
