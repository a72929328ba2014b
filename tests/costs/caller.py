"""A client in a process of its own, for `system.py`: does one section each time it is told to.

Lines on its input name the section; it answers each when all operations of the section are done.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import weft

from .operations import Plan, patient, sections

#: The system call that ends an operation, for who traces this process. Nobody else makes it.
MARK: Final = "getppid"


def main() -> None:
    servers, singles, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with patient(), weft.connect(servers) as client:
        client.create_queue("costs")
        plan = {one.name: one for one in sections(client.queue("costs"), Plan(singles, batches))}
        print("ready", flush=True)
        for line in sys.stdin:
            _, times, call = plan[line.strip()]
            for _ in range(times):
                call()
                os.getppid()
            print("done", flush=True)


if __name__ == "__main__":
    main()
