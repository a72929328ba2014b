"""A node without credit scheduling, for comparison: every round runs all requests that it received.

A prefix of the command that starts a node: `python -m bench.unscheduled_node COMMAND...`.
"""

from __future__ import annotations

import sys

from weft import child_node
from weft.server.node.request_scheduler import RequestScheduler


def main() -> None:
    RequestScheduler.contends = lambda *_: False  # type: ignore[assignment, method-assign]
    start = sys.argv.index("weft.child_node") + 1
    child_node.main(int(sys.argv[start]), sys.argv[start + 1 :])


if __name__ == "__main__":
    main()
