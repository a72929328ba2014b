"""When a load process ends: on SIGTERM, or when its parent has exited."""

from __future__ import annotations

import os

_asked = False
_parent = os.getppid()


def is_over() -> bool:
    return _asked or os.getppid() != _parent


def ask(*_: object) -> None:
    """A signal handler."""
    global _asked
    _asked = True
