"""The journal of one process, in a file that survives any end of the process.

Times are the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import msgspec

from tests.total_queue import History, Kind


class Journal(History):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.counts: Counter[str] = Counter()

    def flush(self) -> None:
        """Write all events since the last flush to the file."""
        lines = b"".join(msgspec.json.encode(event) + b"\n" for event in self.events)
        self.events.clear()
        if lines:
            os.write(self._file, lines)

    def close(self) -> None:
        self.flush()
        os.close(self._file)
        counts_of(self._path).write_text(json.dumps(self.counts), encoding="utf-8")


def counts_of(path: Path) -> Path:
    """The file with the counts of a journal."""
    return path.with_suffix(".counts")


def load_counts(paths: list[Path]) -> Counter[str]:
    """The sum of all counts; a process that was killed from outside left none."""
    total: Counter[str] = Counter()
    for path in map(counts_of, paths):
        if path.exists():
            total.update(json.loads(path.read_text(encoding="utf-8")))
    return total


def acknowledged_at(path: Path) -> list[float]:
    """When the pushes of one producer were acknowledged, in order."""
    return sorted({e.at for e in History.load(path).events if e.kind is Kind.ACKNOWLEDGED})
