"""The reference pages that are generated and committed: readable on a code host without Sphinx."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import cli_page, errors_page, metrics_page, settings_page

REFERENCE = Path(__file__).parents[1] / "reference"
PAGES: dict[Path, Callable[[], str]] = {
    REFERENCE / "cli.md": cli_page.render,
    REFERENCE / "errors.md": errors_page.render,
    REFERENCE / "metrics.md": metrics_page.render,
    REFERENCE / "settings.md": settings_page.render,
}


def stale() -> list[Path]:
    """The pages that differ from the code."""
    return [
        path
        for path, render in PAGES.items()
        if not path.exists() or path.read_text(encoding="utf-8") != render()
    ]


def write() -> list[Path]:
    """Writes the stale pages again; returns them."""
    changed = stale()
    for path in changed:
        path.write_text(PAGES[path](), encoding="utf-8")
    return changed
