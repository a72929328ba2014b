"""The site's additions to Sphinx: navigation, docstrings as they are written, and public names."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.addnodes import pending_xref

import weft
from weft import aio, tasks
from weft.tasks import bundle, future

from .docstrings import to_rest
from .navigation import toctrees

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

#: The classes constructed by an application.
CONSTRUCTED = {"weft.Reject", "weft.Retry", "weft.RetryLater", "weft.Tls"}
BUILTINS = frozenset(dir(builtins))
#: The representation of a policy names a function inside `expo`.
DEFAULT_RETRY = re.compile(r"Retry\(attempts=\d+, backoff=<[^=]*>\)")
START = """<!doctype html><meta charset="utf-8"><title>Weft</title>
<meta http-equiv="refresh" content="0; url=docs/README.html"><a href="docs/README.html">Weft</a>
"""


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Adds the tree of pages to an index page."""
    source[0] += toctrees(docname)


def convert_docstring(
    app: Sphinx, what: str, name: str, subject: object, options: object, lines: list[str]
) -> None:
    lines[:] = to_rest(lines)


def shorten_signature(
    app: Sphinx,
    what: str,
    name: str,
    subject: object,
    options: object,
    arguments: str | None,
    returned: str | None,
) -> tuple[str, str | None] | None:
    """Hides the arguments of a class that the application gets from another call."""
    if arguments is None:
        return None
    if what in ("class", "exception") and name not in CONSTRUCTED:
        return "", None
    return DEFAULT_RETRY.sub("Retry()", arguments), returned


def unlink_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Keeps `bytes` of an annotation from leading to a field of that name.

    A name that is imported for type checkers alone is not qualified: `Client` is `weft.Client`.
    """
    for node in list(doctree.findall(pending_xref)):
        if node.get("refdomain") != "py":
            continue
        if node["reftarget"] in BUILTINS:
            node.replace_self(node.children)
        elif node["reftarget"] in weft.__all__:
            node["reftarget"], node["refspecific"] = f"weft.{node['reftarget']}", False


def rename_async_classes() -> None:
    """Gives the classes of `weft.aio` their public names.

    Otherwise Sphinx would take `weft.aio.Queue`, whose name is AsyncQueue, for an alias, and show
    none of its members.
    """
    for name in aio.__all__:
        subject = getattr(aio, name)
        if isinstance(subject, type):
            subject.__name__ = name


def public_names() -> dict[str, str]:
    """The public name of each class by the name of its definition: annotations name the latter."""
    # The type variable of messages: a class of `weft.aio` pops messages of `weft.aio`.
    found = {
        "weft.client.consumer.message.M": "weft.aio.Message",
        "weft.client.consumer.message.BaseMessage": "weft.Message",
        "weft.client.transaction.effects.M": "weft.Message",
    }
    for module in (tasks, weft, aio):
        for name in module.__all__:
            subject = getattr(module, name)
            if hasattr(subject, "__qualname__"):
                defined = f"{subject.__module__}.{subject.__qualname__}"
                found[defined] = f"{module.__name__}.{name}"
    return found


def resolve_public_name(
    app: Sphinx, env: BuildEnvironment, node: Any, content: Any
) -> nodes.Element | None:
    """Leads from `weft.client.sync_queue.Queue` to `weft.Queue`."""
    target = public_names().get(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or target is None:
        return None
    if isinstance(content, nodes.Text):
        content = nodes.Text(target.rpartition(".")[2])
    domain = env.domains["py"]
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], target, node, content
    )


def write_start(app: Sphinx, error: Exception | None) -> None:
    """Makes the root of the site lead to the start page."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "index.html").write_text(START, encoding="utf-8")


def complete_futures() -> None:
    """Gives `tasks/future.py` the names that it imports for type checkers alone.

    Sphinx evaluates the annotations of a msgspec struct.
    """
    for name, subject in (("App", tasks.App), ("Bundle", bundle.Bundle)):
        setattr(future, name, subject)


def setup(app: Sphinx) -> dict[str, bool]:
    rename_async_classes()
    complete_futures()
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", convert_docstring)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("doctree-read", unlink_builtins)
    app.connect("missing-reference", resolve_public_name)
    app.connect("build-finished", write_start)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
