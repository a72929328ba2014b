"""An app of one task that holds the interpreter's lock."""

from __future__ import annotations

from tests.tasks import shop
from weft import tasks

app = tasks.App("held")
app.task(shop.hold_interpreter.function)
