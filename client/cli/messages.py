"""The JSON object of one message, as `weft pop --json` and `weft peek --json` print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import output

if TYPE_CHECKING:
    from weft import Message


def as_json(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": str(message.id),
        **output.bytes_field("body", message.body),
        "headers": message.headers,
        "key": message.key,
        "deliveries": message.deliveries,
        "pushed_at": message.pushed_at,
        "priority": message.priority,
    }
    if message.group is not None:
        shown["group"] = message.group
    if message.dead_reason:
        shown["dead_reason"] = message.dead_reason
        shown["dead_origin"] = message.dead_origin
        shown["dead_deliveries"] = message.dead_deliveries
    if message.due_at is not None:
        shown["due_at"] = message.due_at
    return shown
