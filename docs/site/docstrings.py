"""Docstrings of Weft as reStructuredText.

A docstring is written as Markdown is: backticks enclose code, and an indented paragraph is an
example. `default_role` of Sphinx handles the backticks; this module marks the examples and links
the names of errors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from weft.errors import BY_CODE

_INDENT = "    "
#: Begins a line of a drawn tree, such as the one of the errors.
_BRANCH = "├"
#: The name of an error in a sentence, which becomes a link; not within code or another word.
_ERROR = re.compile(
    rf"(?<![`\w.])(?:{'|'.join(sorted(error.__name__ for error in BY_CODE.values()))})(?![`\w])"
)


def to_rest(lines: Sequence[str]) -> list[str]:
    """Returns the docstring with a code-block directive before each example."""
    made: list[str] = []
    for number, paragraph in enumerate(_paragraphs(lines)):
        if any(line.startswith(_BRANCH) for line in paragraph):
            made += [".. code-block:: text", "", *(_INDENT + line for line in paragraph), ""]
            continue
        indented = all(not line or line.startswith(_INDENT) for line in paragraph)
        if indented and not made_of_rest(made):
            made += [".. code-block:: python", "", *paragraph, ""]
        elif number and is_code(paragraph):
            made += [".. code-block:: python", "", *(_INDENT + line for line in paragraph), ""]
        else:
            made += [*(_ERROR.sub(_link, line) for line in paragraph), ""]
    return made


def _link(error: re.Match[str]) -> str:
    return f":py:exc:`~weft.errors.{error[0]}`"


def made_of_rest(before: Sequence[str]) -> bool:
    """True if the text before introduces an indented block by itself."""
    last = next((line for line in reversed(before) if line), "")
    return last.endswith("::") or last.startswith(("..", "- ", ":"))


def is_code(paragraph: Sequence[str]) -> bool:
    """True for an example at the docstring's end, where no text shows its indentation.

    `inspect.cleandoc` removes the indentation that all lines after the first have in common.
    """
    text = "\n".join(paragraph)
    if "(" not in text:
        return False
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _paragraphs(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yields runs of lines without an empty line; an indented run includes its empty lines."""
    run: list[str] = []
    for line in lines:
        if line:
            run.append(line)
        elif run:
            yield run
            run = []
    if run:
        yield run
