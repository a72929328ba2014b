"""The synchronous client is the one that the generator makes of the asyncio client."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator
from typing import Any

import pytest

import weft
from tools.facade.docstring import Docstrings
from tools.facade.module_writer import ROOT, generate
from weft import aio
from weft.client.async_kv import AsyncKv
from weft.client.sync_kv import Kv

PAIRS = [
    *(
        (getattr(weft, name), getattr(aio, name))
        for name in ("Client", "Consumer", "Message", "Producer", "Queue", "Stage",
                     "Subscription", "Worker")
    ),
    (Kv, AsyncKv),
]  # fmt: skip


def test_the_generated_modules_are_fresh() -> None:
    for path, text in generate().items():
        kept = (ROOT / path).read_text(encoding="utf-8")
        assert kept == text, f"{path} is not what its asyncio source says: run `make facade`"


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name, method


@pytest.mark.parametrize(("kind", "asynchronous"), PAIRS)
def test_a_method_has_the_parameters_of_its_asyncio_form(kind: type, asynchronous: type) -> None:
    for name, method in methods(kind):
        ours, theirs = inspect.signature(method), inspect.signature(getattr(asynchronous, name))
        assert not inspect.iscoroutinefunction(method), f"{kind.__name__}.{name}"
        assert [(each.name, each.kind, each.default) for each in ours.parameters.values()] == [
            (each.name, each.kind, each.default) for each in theirs.parameters.values()
        ], f"{kind.__name__}.{name}"
        assert "Async" not in str(ours), f"{kind.__name__}.{name}{ours}"
        assert "Await" not in str(ours), f"{kind.__name__}.{name}{ours}"


@pytest.mark.parametrize(("kind", "asynchronous"), PAIRS)
def test_a_method_has_the_docstring_of_its_asyncio_form(kind: type, asynchronous: type) -> None:
    assert kind.__doc__
    for name, method in [("class", kind), *methods(kind)]:
        theirs = asynchronous if name == "class" else getattr(asynchronous, name)
        assert bool(method.__doc__) == bool(theirs.__doc__), f"{kind.__name__}.{name}"
        found = re.search(r"(?i)\b(await|async|asyncio|aio)\b", method.__doc__ or "")
        assert found is None, f"{kind.__name__}.{name} speaks of {found and found.group()}"


def test_help_shows_the_synchronous_example() -> None:
    text = pydoc.plain(pydoc.render_doc(weft.Queue.push))
    assert 'message_id = orders.push(b"one")' in text
    assert "await" not in text
    assert inspect.get_annotations(weft.Queue.pop)["return"] == "Message | None"


def test_only_a_paragraph_with_another_sentence_is_filled_again() -> None:
    text = """Any other iterable, also
    an async one, is read.

        ids = await orders.push_many(
            bodies)

    Short
    lines.
    """
    assert Docstrings().convert(text, 4) == (
        "Any other iterable is read.\n\n        ids = orders.push_many(\n            bodies)\n\n"
        "    Short\n    lines.\n    "
    )
