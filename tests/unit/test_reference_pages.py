"""The generated reference pages say what the code says; docstrings become valid pages."""

from __future__ import annotations

import re

import click
import pytest

import weft
from docs.site import cli_page, errors_page, metrics_page, navigation, settings_page
from docs.site.docstrings import to_rest
from docs.site.pages import PAGES, REFERENCE
from weft.client.cli.main import cli
from weft.errors import BY_CODE
from weft.server.config import FIELDS
from weft.server.observability.metrics import FAMILIES

DIRECTIVE = re.compile(r"^\.\. auto\w+:: ([\w.]+)$", re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.name))
def test_a_generated_page_is_fresh(path: object) -> None:
    page, render = next(each for each in PAGES.items() if each[0] == path)
    assert page.read_text(encoding="utf-8") == render(), f"{page.name}: run `python -m docs.site`"


def test_every_command_and_option_is_on_the_page() -> None:
    page = cli_page.render()
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert f"\n## weft {name}\n" in page
        for option in command.params:
            if isinstance(option, click.Option):
                assert f"`{option.opts[0]}`" in page


def test_every_error_setting_and_metric_is_on_its_page() -> None:
    errors, settings, metrics = errors_page.render(), settings_page.render(), metrics_page.render()
    for code in BY_CODE:
        assert f"| `{code}` |" in errors
    for name in FIELDS:
        assert f"\n### {name}\n" in settings
    for family in FAMILIES:
        assert f"| `{family.name}` | {family.kind} |" in metrics


def test_every_setting_has_a_comment_in_the_sample_file() -> None:
    comments = settings_page.comments()
    assert list(comments) == list(FIELDS)
    assert all(comments.values())


@pytest.mark.parametrize("docname", navigation.TREES)
def test_a_tree_names_pages_that_exist_and_each_once(docname: str) -> None:
    lines = navigation.toctrees(docname).splitlines()
    pages = [line for line in lines if line.startswith("/")]
    assert pages
    assert len(pages) == len(set(pages))
    for page in pages:
        assert (navigation.ROOT / f"{page[1:]}.md").is_file(), page
    assert f"/{docname}" not in pages


def test_other_pages_have_no_tree() -> None:
    assert navigation.toctrees("docs/cluster") == ""


def test_an_indented_paragraph_is_an_example() -> None:
    made = to_rest(["Stores it.", "", "    queue.push(b'one')", "", "Raises TooLarge."])
    assert made == [
        "Stores it.", "", ".. code-block:: python", "", "    queue.push(b'one')", "",
        "Raises :py:exc:`~weft.errors.TooLarge`.", "",
    ]  # fmt: skip


def test_an_example_at_the_end_is_recognised_by_its_syntax() -> None:
    made = to_rest(["A client.", "", "with connect() as client:", "    client.close()"])
    assert made[2:] == [
        ".. code-block:: python", "", "    with connect() as client:", "        client.close()", "",
    ]  # fmt: skip


def test_a_sentence_is_no_example() -> None:
    assert to_rest(["Stores it (durably).", "", "Waits."]) == [
        "Stores it (durably).", "", "Waits.", "",
    ]  # fmt: skip


def test_a_drawn_tree_keeps_its_lines() -> None:
    made = to_rest(["Tree:", "", "Root", "├── Leaf"])
    assert made[2:] == [".. code-block:: text", "", "    Root", "    ├── Leaf", ""]


def test_every_public_name_is_in_the_python_reference() -> None:
    """A name in two modules, such as `expo`, is documented once; errors have their own page."""
    pages = (REFERENCE / "python").glob("*.md")
    listed = {name for page in pages for name in DIRECTIVE.findall(page.read_text("utf-8"))}
    names: dict[object, set[str]] = {}
    for module in (weft, weft.aio, weft.tasks):
        for name in module.__all__:
            subject = getattr(module, name)
            if hasattr(subject, "__qualname__") and subject not in BY_CODE.values():
                defined = f"{subject.__module__}.{subject.__qualname__}"
                names.setdefault(subject, {defined}).add(f"{module.__name__}.{name}")
    assert len(names) > 40
    assert not [each for each in names.values() if not each & listed]
