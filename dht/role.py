"""The role of a replica in its partition: rules, then one table. The code only executes the table.

Rules:

1. The role is volatile: a fresh process is IDLE, whatever its role was before.
2. Only a view makes a replica leave IDLE: a newer epoch that names this node primary.
3. A replica reaches ACTIVE only by way of SEALING and COPYING, in one epoch. SEALING fences every
   older primary; COPYING makes every member's log equal to the primary's. Without either, an
   entry acknowledged in an older epoch could be missing from, or contradict, the new log.
4. FETCHING is skipped if the replica keeps its own log: its log is the most advanced one, or the
   epoch continues the replica's reign, and so the log has every committed entry.
5. A newer epoch ends every role. A replica named primary in two epochs, one after the other, passes
   through IDLE, so that no state of the older epoch remains.

| role | activity | may take proposals |
|---|---|---|
| IDLE | follows a primary, or holds nothing | no |
| SEALING | asks the sync set to promise the epoch | no |
| FETCHING | copies the most advanced log from its member | no |
| COPYING | levels all members with the primary's log | no |
| ACTIVE | appends, ships and commits entries | if the set has ``min_sync`` members |
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Role(Enum):
    """The values are shown by the status, the metrics and the verdict."""

    IDLE = "idle"
    SEALING = "sealing"
    FETCHING = "fetching"
    COPYING = "copying"
    ACTIVE = "active"


class RoleEvent(Enum):
    """The only causes of a change of role."""

    #: A view with a newer epoch names this node primary.
    NAMED_PRIMARY = "named primary"
    #: Every member of the sync set has promised the epoch, and this replica keeps its own log.
    OWN_LOG_CHOSEN = "own log chosen"
    #: Every member has promised the epoch, and another member's log is the most advanced one.
    OTHER_LOG_CHOSEN = "other log chosen"
    #: The replica's log equals the chosen log.
    LOG_FETCHED = "log fetched"
    #: Every member's log equals the replica's log.
    MEMBERS_LEVEL = "members level"
    #: The replica learned or promised a newer epoch, or another node answered FENCED.
    DEPOSED = "deposed"


#: role -> event -> next role. An event that a role does not list cannot happen in the role.
TRANSITIONS: Final[dict[Role, dict[RoleEvent, Role]]] = {
    Role.IDLE: {
        RoleEvent.NAMED_PRIMARY: Role.SEALING,
    },
    Role.SEALING: {
        RoleEvent.OWN_LOG_CHOSEN: Role.COPYING,
        RoleEvent.OTHER_LOG_CHOSEN: Role.FETCHING,
        RoleEvent.DEPOSED: Role.IDLE,
    },
    Role.FETCHING: {
        RoleEvent.LOG_FETCHED: Role.COPYING,
        RoleEvent.DEPOSED: Role.IDLE,
    },
    Role.COPYING: {
        RoleEvent.MEMBERS_LEVEL: Role.ACTIVE,
        RoleEvent.DEPOSED: Role.IDLE,
    },
    Role.ACTIVE: {
        RoleEvent.DEPOSED: Role.IDLE,
    },
}


def next_role(role: Role, event: RoleEvent) -> Role:
    """The role after the event; an event that the table does not list is a bug of this program."""
    following = TRANSITIONS[role].get(event)
    assert following is not None, f"a replica in role {role.value} cannot be {event.value!r}"
    return following
