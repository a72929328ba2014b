"""The limits of a replica. Used as ``replica_limits.X``, so that the simulator lowers each once."""

from __future__ import annotations

from typing import Final

#: Entries in one message.
ENTRIES_MAX: Final = 64
#: Entries applied in one round.
APPLY_MAX: Final = 256
#: Applied entries kept for followers that are only a little behind.
KEEP_MAX: Final = 4096
