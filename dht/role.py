"""The role of a replica in its partition. Volatile: a fresh process is always IDLE.

| role | activity | next role |
|---|---|---|
| IDLE | follows a primary, or holds nothing | SEALING: a new epoch names this node primary |
| SEALING | asks the sync set to promise the epoch | FETCHING or COPYING: all members are sealed |
| FETCHING | copies the most advanced log from its member | COPYING: the logs are equal |
| COPYING | levels all members with the primary's log | ACTIVE: all members are level |
| ACTIVE | takes proposals if the set has ``min_sync`` members | IDLE: see below |

A replica skips FETCHING if its own log is the most advanced, or if the replica was ACTIVE in the
previous epoch. From every role, a newer epoch or a FENCED answer leads back to IDLE.
"""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    IDLE = "idle"
    SEALING = "sealing"
    FETCHING = "fetching"
    COPYING = "copying"
    ACTIVE = "active"
