"""Writes the generated reference pages again: `python -m docs.site`."""

from __future__ import annotations

from .pages import REFERENCE, write

if __name__ == "__main__":
    for path in write():
        print(f"wrote docs/reference/{path.relative_to(REFERENCE)}")
