"""The output folder of a run: refused, resumed, or committed.

| the folder | a run |
|---|---|
| absent or empty | begins |
| `_weft` with the same plan, no `_SUCCESS` | continues: the run before was killed |
| `_weft` with another plan | is refused, except with `overwrite` |
| the output of a run | is refused, except with `overwrite` |
| any other file | is refused |
| locked by a live run | is refused |

Parts are written as drafts in `_weft`. The commit removes an older output, gives the drafts their
names, and writes `_SUCCESS` last: output without `_SUCCESS` is not complete.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Sequence
from typing import Final

import msgspec

from weft.errors import InvalidArgument, UsageError
from weft.tasks.blocks.block_file import write_file

from .job_plan import JobPlan

SUCCESS: Final = "_SUCCESS"
WORK: Final = "_weft"
_PART: Final = re.compile(r"part-\d{5,}")


class UnfinishedRun(msgspec.Struct, array_like=True, frozen=True):
    """What a driver notes, for a driver after its death."""

    plan: JobPlan
    queue: str
    #: Ids of the map tasks, in order; empty until all are submitted.
    maps: list[str] = []
    #: When the map tasks were submitted, in seconds since 1970.
    submitted: float = 0.0


class OutputFolder:
    """The folder, from the check to the commit. Used as a context: the end releases the lock."""

    def __init__(self, path: str, overwrite: bool) -> None:
        self.path = path
        self.work = os.path.join(path, WORK)
        self.drafts = os.path.join(self.work, "drafts")
        self._lock_path = os.path.join(self.work, "lock")
        self._overwrite = overwrite
        self._lock = -1
        self._made = False

    def __enter__(self) -> OutputFolder:
        if os.path.exists(self.path) and not os.path.isdir(self.path):
            raise InvalidArgument(f"the output {self.path} is a file: name a folder")
        self._check_names()
        self._made = not os.path.isdir(self.path)
        os.makedirs(self.drafts, exist_ok=True)
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._release()
            raise self._in_use() from None
        if not self._is_locked() or self._has_ended():
            self._release()
            raise self._in_use()
        return self

    def _check_names(self) -> None:
        names = set(os.listdir(self.path)) if os.path.isdir(self.path) else set()
        foreign = sorted(n for n in names if n not in (SUCCESS, WORK) and not _PART.fullmatch(n))
        if foreign:
            raise InvalidArgument(
                f"the output folder {self.path} holds {foreign[0]}, which no run has written: "
                "choose another folder"
            )
        finished = SUCCESS in names or (WORK not in names and bool(names))
        if finished and not self._overwrite:
            raise InvalidArgument(
                f"the output folder {self.path} exists: choose another folder, or pass overwrite"
            )

    def _in_use(self) -> UsageError:
        return UsageError(
            f"another run writes to {self.path}: wait for its end, or choose another folder"
        )

    def _is_locked(self) -> bool:
        """False if another run has ended and removed the file between its opening and the lock."""
        try:
            return os.path.samestat(os.stat(self._lock_path), os.fstat(self._lock))
        except FileNotFoundError:
            return False

    def _has_ended(self) -> bool:
        """True if another run has written its output since the names were checked."""
        if self._overwrite or not os.path.exists(os.path.join(self.path, SUCCESS)):
            return False
        shutil.rmtree(self.work, ignore_errors=True)
        return True

    def __exit__(self, *error: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- an unfinished run ---

    def unfinished(self) -> UnfinishedRun | None:
        """The notes of a killed driver, if it left any."""
        try:
            with open(os.path.join(self.work, "run"), "rb") as file:
                return msgspec.msgpack.decode(file.read(), type=UnfinishedRun)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def refuse_other(self, found: UnfinishedRun) -> None:
        """For an unfinished run of another plan: raises InvalidArgument, except to overwrite."""
        if not self._overwrite:
            raise InvalidArgument(
                f"the output folder {self.path} holds an unfinished run of other arguments or "
                f"another input ({found.plan.job}): choose another folder, or pass overwrite"
            )

    def note(self, run: UnfinishedRun) -> None:
        """Writes the notes of this run."""
        write_file(os.path.join(self.work, "run"), [msgspec.msgpack.encode(run)])

    def clear_work(self) -> None:
        """Removes what an unfinished run has left, but not the lock."""
        for name in os.listdir(self.work):
            path = os.path.join(self.work, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif name != "lock":
                os.unlink(path)
        os.makedirs(self.drafts)

    # --- the end ---

    def commit(self, drafts: Sequence[str]) -> None:
        """Gives the drafts their names, in order, and marks the output as complete."""
        names = [name for name in os.listdir(self.path) if _PART.fullmatch(name)]
        for name in [SUCCESS, *names]:
            if os.path.exists(old := os.path.join(self.path, name)):
                os.unlink(old)
        for number, draft in enumerate(drafts):
            final = os.path.join(self.path, f"part-{number:05d}")
            os.replace(os.path.join(self.drafts, draft), final)
        self._sync()
        with open(os.path.join(self.path, SUCCESS), "wb") as file:
            os.fsync(file.fileno())
        self._sync()
        shutil.rmtree(self.work, ignore_errors=True)

    def abandon(self) -> None:
        """Removes everything of a failed run; an older output stays."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self._made:
            try:
                os.rmdir(self.path)
            except OSError:
                pass

    def _sync(self) -> None:
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_apart(source: str, output: str) -> None:
    """Raises InvalidArgument if one folder is inside of the other."""
    first, second = os.path.realpath(source), os.path.realpath(output)
    for inner, outer in ((second, first), (first, second)):
        if inner == outer or inner.startswith(outer.rstrip(os.sep) + os.sep):
            raise InvalidArgument(
                f"the output {output} and the input {source} must be apart: one is in the other"
            )
