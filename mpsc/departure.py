"""How a rank's process ends when the job is not whole any more.

``MPI_Finalize`` waits for all ranks, so after a death, or when this rank itself failed before it
left its gateway, it would wait for ever. There is no way in MPI to leave alone. So such a process
ends without it: at exit it hands out what it has printed and ends at once. The gateway's process
does that last, when all others are gone, since a launcher may take its end as the end of the job.

Exit handlers that were registered before the gateway was opened do not run in that case.

A rank that ``weft mpi-gateway`` has started has a supervisor (``launch.py``), which is told here
where the gateway is, and whether this rank has left it in good order.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable
from typing import Final

#: The exit code of a process that could not finalize MPI.
NOT_WHOLE: Final = 1
#: The file descriptor on which the supervisor listens.
SUPERVISOR: Final = "WEFT_MPI_SUPERVISOR"
OPENED, LEFT = "opened", "left"


class Departure:
    """Made when a rank has joined a gateway; ``left`` is called when it has left it."""

    def __init__(self, address: str, before_end: Callable[[], None]) -> None:
        self._before_end = before_end
        self._tell(f"{OPENED} {address}")
        atexit.register(self._end)

    def left(self) -> None:
        """All ranks have left together: MPI can be finalized as ever."""
        atexit.unregister(self._end)
        self._tell(LEFT)

    def _end(self) -> None:
        self._before_end()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(NOT_WHOLE)

    @staticmethod
    def _tell(line: str) -> None:
        told = os.environ.get(SUPERVISOR)
        if told is not None:
            os.write(int(told), f"{line}\n".encode())
