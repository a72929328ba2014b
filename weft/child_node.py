"""A node that ends with the parent process: ``python -m weft.child_node PARENT FLAGS...``.

For tests. The kernel kills the node when the parent process is gone, regardless of how the parent
ended and even while the node is paused, so no test run leaves a node behind.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main(parent: int, flags: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("the parent has ended already")
    command = importlib.import_module("weft.server.serve_command")
    command.serve(flags, prog_name="weft serve")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
