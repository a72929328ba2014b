"""The engine's handlers, one per verb: each is registered beside its definition.

A handler gets the engine's state, the request and the caller; the handler of a verb with a payload
gets the payload frame and the durability, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.proto.handlers import Handlers

handles: Final = Handlers[Callable[..., None]]()
