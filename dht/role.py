"""What a replica is doing for its partition. Volatile: a fresh process is always IDLE."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    IDLE = "idle"
    SEALING = "sealing"
    FETCHING = "fetching"
    COPYING = "copying"
    ACTIVE = "active"
