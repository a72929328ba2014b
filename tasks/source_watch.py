"""Changes of Python files below the working directory, for `weft worker --reload`.

The times and sizes of the files are compared, which needs no library and sees every editor. The
first look is before the first worker process starts, so a change during an import counts.
"""

from __future__ import annotations

import os
import time
from typing import Final

from weft.errors import InvalidArgument

POLL_S: Final = 0.5
#: More files than a project of one's own has: the worker was started in a wrong folder.
FILES_MAX: Final = 20_000
#: Folders without sources of one's own; hidden ones are left out, too.
_NOT_OURS: Final = {"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"}


class SourceWatch:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen = self._scan()
        self._next = 0.0

    def changed(self) -> list[str]:
        """The files that changed, appeared or vanished since the last call, as relative paths."""
        now = time.monotonic()
        if now < self._next:
            return []
        self._next = now + POLL_S
        before, self._seen = self._seen, self._scan()
        both = before.keys() | self._seen.keys()
        return sorted(name for name in both if before.get(name) != self._seen.get(name))

    def _scan(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for folder, folders, files in os.walk(self._folder):
            folders[:] = [each for each in folders if each[0] != "." and each not in _NOT_OURS]
            for name in files:
                if not name.endswith(".py"):
                    continue
                path = os.path.join(folder, name)
                try:
                    stat = os.stat(path)
                except OSError:
                    continue  # removed meanwhile
                found[os.path.relpath(path, self._folder)] = (stat.st_mtime_ns, stat.st_size)
            if len(found) > FILES_MAX:
                raise InvalidArgument(
                    f"--reload watches the Python files below {self._folder}, which are more than "
                    f"{FILES_MAX}: start the worker in the folder of the app"
                )
        return found
