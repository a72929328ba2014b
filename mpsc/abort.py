"""The exit of a rank's process after a rank of the job was lost.

``MPI_Finalize`` waits for all ranks, so after a death, or after a failure of this rank before it
left its gateway, finalizing would wait for ever. MPI offers no way to leave alone. So such a
process skips it: at exit the process flushes its output and ends at once. The gateway's process
does so last, when all others are gone, since a launcher may take its end as the end of the job.

Exit handlers registered before the gateway was opened do not run in this case.

A rank started by ``weft mpi-gateway`` has a supervisor (``rank_launcher.py``). This module tells
the supervisor the gateway's address, and whether the rank has left the gateway in good order.
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
#: Environment variable with the file descriptor on which the supervisor listens.
SUPERVISOR: Final = "WEFT_MPI_SUPERVISOR"
OPENED, LEFT = "opened", "left"


class RankExit:
    """Created when a rank has joined a gateway; call ``left`` when the rank has left."""

    def __init__(self, address: str, before_end: Callable[[], None]) -> None:
        self._before_end = before_end
        self._notify_supervisor(f"{OPENED} {address}")
        atexit.register(self._end)

    def left(self) -> None:
        """All ranks have left together: MPI can be finalized as usual."""
        atexit.unregister(self._end)
        self._notify_supervisor(LEFT)

    def _end(self) -> None:
        self._before_end()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(NOT_WHOLE)

    @staticmethod
    def _notify_supervisor(line: str) -> None:
        descriptor = os.environ.get(SUPERVISOR)
        if descriptor is not None:
            os.write(int(descriptor), f"{line}\n".encode())
