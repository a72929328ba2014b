"""The synchronous form of a docstring: sentences from a table, examples without `await`."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Final

from .targets import EXAMPLES, SENTENCES

LINE_MAX: Final = 100
_QUOTES: Final = '"""'


class Docstrings:
    """Converts docstrings and records which entries of the tables occurred."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def convert(self, text: str, indent: int) -> str:
        """Returns the docstring as it stands in the source, `indent` columns from the left."""
        paragraphs = inspect.cleandoc(text).split("\n\n")
        first = self._paragraph(paragraphs[0], indent, len(_QUOTES))
        rest = [self._paragraph(paragraph, indent, 0) for paragraph in paragraphs[1:]]
        whole = "\n\n".join([first, *rest])
        if "\n" not in whole and indent + len(whole) + 2 * len(_QUOTES) <= LINE_MAX:
            return whole
        return textwrap.indent(whole + "\n", " " * indent)[indent:] + " " * indent

    def _paragraph(self, paragraph: str, indent: int, offset: int) -> str:
        paragraph = self._example(paragraph)
        joined = changed = " ".join(paragraph.split())
        for sentence, form in SENTENCES.items():
            if sentence in changed:
                self.used.add(sentence)
                changed = changed.replace(sentence, form)
        if changed == joined:
            return paragraph
        filled = textwrap.fill(
            changed,
            LINE_MAX - indent,
            initial_indent=" " * offset,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return filled[offset:]

    def _example(self, paragraph: str) -> str:
        for line, form in EXAMPLES.items():
            if line in paragraph:
                self.used.add(line)
                paragraph = paragraph.replace(line, form)
        paragraph = re.sub(r"\bawait (?!`)", "", paragraph)
        return re.sub(r"\basync (with|for)\b", r"\1", paragraph)
