"""How long, and in how many threads, a client spins for an answer before it blocks."""

from __future__ import annotations

import os
import threading
from typing import Final

from weft.errors import InvalidArgument

#: How long a synchronous call spins for its answer: enough for an answer that waits for a disk
#: sync. The environment variable WEFT_AWAKE_US overrides this value.
AWAKE_US: Final = 500
AWAKE_US_MAX: Final = 10_000
#: Held by the one thread of the process that spins: several spinning threads would slow each other.
ONE_AWAKE: Final = threading.Lock()


def awake_us() -> int:
    said = os.environ.get("WEFT_AWAKE_US") or str(AWAKE_US)
    if not said.isascii() or not said.isdigit() or int(said) > AWAKE_US_MAX:
        raise InvalidArgument(
            f"WEFT_AWAKE_US is {said!r}: it is a number of microseconds from 0 to {AWAKE_US_MAX}"
        )
    return int(said)
