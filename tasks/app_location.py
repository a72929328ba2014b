"""MODULE:APP: the place of a worker's app, and one line for code that fails to import."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple

from weft.errors import InvalidArgument, UsageError

from .app import App
from .call import check_queue, queue_name

log = logging.getLogger("weft.tasks")


class AppLocation(NamedTuple):
    module: str
    attribute: str

    @classmethod
    def parse(cls, text: str) -> AppLocation:
        """Reads MODULE:APP, or MODULE for an app with the name `app`."""
        module, _, attribute = text.partition(":")
        parts = [*module.split("."), *([attribute] if attribute else [])]
        if not all(part.isidentifier() for part in parts):
            raise InvalidArgument(
                f"an app is named MODULE:APP, as in shop.tasks:app, not {text[:100]!r}"
            )
        return cls(module, attribute or "app")

    def load(self) -> App:
        """Imports the module, also from the working directory. Raises UsageError: one line."""
        folder = os.getcwd()
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            module = importlib.import_module(self.module)
        except BaseException as error:
            raise UsageError(
                f"the module {self.module} cannot be imported: {_reason(error)}"
            ) from error
        found = getattr(module, self.attribute, None)
        if not isinstance(found, App):
            what = "is missing" if found is None else f"is a {type(found).__name__}"
            raise UsageError(f"{self.module}:{self.attribute} {what}: it must be a weft.tasks.App")
        return found


def queues_of(app: App, given: Sequence[str]) -> list[str]:
    """The full names of a worker's queues: the given ones, or the queues of all tasks."""
    if given:
        names = [queue_name(app.name, check_queue(app.name, queue)) for queue in given]
        for name in sorted(set(names) - set(app.queues)):
            log.warning("no task of the app %s is on the queue %s: is -q right?", app.name, name)
        return names
    found = sorted({task.queue for task in app.tasks.values()})
    if not found:
        raise UsageError(
            f"the app {app.name} has no task: import their modules in the app's module"
        )
    return found


def _reason(error: BaseException) -> str:
    """The exception with its line in the code of the app."""
    own = (__file__, importlib.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in own and not frame.filename.startswith("<frozen ")
    ]
    place = f" (in the folder {os.getcwd()})"
    if frames:
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})"
    text = str(error).splitlines()[0] if str(error) else "no message"
    return f"{type(error).__name__}: {text}{place}"
