"""The synchronous worker: handlers run in threads.

`make facade` generates this module from `client/worker/async_worker.py`: do not edit it.
"""

from __future__ import annotations

from weft.client import arguments

from .thread_worker import ThreadWorker
from .worker_stats import WorkerStats


class Worker(ThreadWorker):
    """A worker of one queue: call `run` in any thread, and `stop` from any other.

    worker = orders.worker(handle, concurrency=8)
    threading.Timer(60, worker.stop).start()
    print(worker.run().summary())
    """

    def run(self) -> WorkerStats:
        """Works until stopped by `stop`, SIGTERM or SIGINT (in the main thread); returns the stats.

        With `idle_ms` the worker also ends when no message came for that time.

        Raises DeadlineExceeded when too many handlers run past their time limit, and SystemExit or
        KeyboardInterrupt if a handler raised it.
        """
        self._work()
        return self.stats

    def stop(self, now: bool = False) -> None:
        """Stops fetching and lets the handlers end; with `now`, waits for no handler."""
        arguments.check_flag("now", now)
        self._request_stop(now)
