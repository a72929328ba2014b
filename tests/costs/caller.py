"""A client in a separate process, for `system.py`: runs one section per command.

Each input line names a section; the process answers when all operations of the section are done.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import weft

from .operations import Plan, patient, sections

#: The system call that marks the end of an operation in a trace. Nothing else makes this call.
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
