"""The spill folder of a machine: block files by app and job, each until its end.

    FOLDER/store                the id of the store
    FOLDER/APP/JOB/NAME         a block

All workers of a machine share a folder. Names have no separator and begin with a letter, a digit or
`_`, and no step follows a symbolic link, so no name leads out of the folder of its job. The
modification time of a block is its end: the sweep removes older blocks.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from weft.errors import InvalidArgument, StorageFull

from .block_file import (
    BlockDamaged,
    PartPlace,
    block_frames,
    checksum_of,
    index_of,
    open_part,
    read_part,
    write_file,
)

#: A name of an app, a job or a block.
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}")
#: One block; larger data is split by its maker.
BLOCK_BYTES_MAX: Final = 1 << 30
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT}
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ID_FILE: Final = "store"


def default_folder() -> str:
    """The folder without `--spill`: of this user, on the disk of temporary files."""
    named = os.environ.get("WEFT_SPILL")
    return named or os.path.join(tempfile.gettempdir(), f"weft-blocks-{os.getuid()}")


def check_name(what: str, name: object) -> str:
    """Raises InvalidArgument for a name that could lead out of its folder."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidArgument(
            f"{what} must be 1 to 120 letters, digits, '.', '_' and '-', and begin with none of "
            f"'.' and '-', not {str(name)[:100]!r}"
        )
    return name


class BlockStore:
    """One folder. Processes may share a folder; threads may share an instance."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = os.path.abspath(folder or default_folder())
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if not folder and os.stat(self.folder).st_uid != os.getuid():
                # The name is no secret, and all users write to the temporary folder.
                raise InvalidArgument(
                    f"the spill folder {self.folder} belongs to another user: name one of your own "
                    "with --spill or WEFT_SPILL"
                )
            self.id = self._identify()
        except OSError as error:
            raise InvalidArgument(
                f"the spill folder {self.folder} cannot be used: {error.strerror}"
            ) from None

    def _identify(self) -> str:
        """The id of the folder, made by the first process. A link fails if there is one."""
        path = os.path.join(self.folder, _ID_FILE)
        if not os.path.exists(path):
            draft = f"{path}.{secrets.token_hex(4)}"
            Path(draft).write_text(secrets.token_hex(8), encoding="ascii")
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                os.unlink(draft)
        return Path(path).read_text(encoding="ascii")

    def job_folder(self, app: str, job: str) -> str:
        """The folder of a job, made if it is missing."""
        path = os.path.join(self.folder, check_name("app", app), check_name("job", job))
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def put(self, app: str, job: str, name: str, parts: Sequence[bytes], ttl_s: float) -> int:
        """Writes a block; returns its checksum. Raises InvalidArgument, StorageFull."""
        check_name("name", name)
        size = sum(map(len, parts))
        if size > BLOCK_BYTES_MAX:
            raise InvalidArgument(
                f"a block has at most {BLOCK_BYTES_MAX} bytes, not {size}: split the data"
            )
        index = index_of(parts)
        try:
            path = os.path.join(self.job_folder(app, job), name)
            try:
                write_file(path, block_frames(parts, index))
            except FileNotFoundError:  # another worker has swept the empty folder just now
                self.job_folder(app, job)
                write_file(path, block_frames(parts, index))
            end = time.time() + ttl_s
            os.utime(path, (end, end))
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise StorageFull(
                    f"no space left on the disk of the spill folder {self.folder}: free some, or "
                    "name another folder with --spill"
                ) from None
            raise
        return checksum_of(index)

    def read(self, app: str, job: str, name: str, part: int, checksum: int) -> bytes:
        """One part of a block, verified. Raises BlockDamaged."""
        return read_part(self.path(app, job, name), part, checksum)

    def path(self, app: str, job: str, name: str) -> str:
        check_name("app", app), check_name("job", job), check_name("name", name)
        return os.path.join(self.folder, app, job, name)

    def open(self, app: str, job: str, name: str, part: int) -> PartPlace:
        """Opens a part for the block server, without a step over a symbolic link. Raises
        BlockDamaged, and InvalidArgument for a name that is none."""
        check_name("app", app), check_name("job", job), check_name("name", name)
        handles: list[int] = []
        try:
            handles.append(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY))
            for each in (app, job):
                handles.append(os.open(each, _FOLDER, dir_fd=handles[-1]))
            return open_part(name, part, handles[-1])
        except OSError as error:
            raise BlockDamaged(f"{app}/{job}/{name}: {error.strerror}") from None
        finally:
            for handle in handles:
                os.close(handle)

    def forget(self, app: str, job: str) -> None:
        """Removes all blocks of a job."""
        check_name("app", app), check_name("job", job)
        shutil.rmtree(os.path.join(self.folder, app, job), ignore_errors=True)

    def sweep(self) -> int:
        """Removes blocks after their end, and empty folders of jobs; returns the blocks removed."""
        now, removed = time.time(), 0
        for job in Path(self.folder).glob("*/*/"):
            try:
                for path in job.iterdir():
                    if path.is_file() and path.stat().st_mtime < now - _DRAFT_S:
                        path.unlink()
                        removed += 1
                if job.stat().st_mtime < now - _DRAFT_S:
                    job.rmdir()
            except OSError:  # not empty, or another worker sweeps
                continue
        return removed


#: An unfinished file is as old as its last write, so the sweep leaves it this long.
_DRAFT_S: Final = 600.0
