"""A member of a gang in its worker: joins the roster, waits for the others, runs the function."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.errors import VersionMismatch
from weft.tasks.signature import encode

from .gang_job import (
    ASSEMBLING,
    RECORD_TTL_MS,
    RUNNING,
    GangMember,
    GangState,
    roster_prefix,
    state_key,
)

if TYPE_CHECKING:
    from weft.tasks.app import App

    from .gang_task import GangTask
    from .mpi_launch import MpiRun

#: Looks at the state row while a member waits: soon at first, then less often.
_POLL_S_MIN, _POLL_S_MAX = 0.02, 0.5
DEFAULT_SERVER: Final = ("127.0.0.1", 7700)


class GangReleased(Exception):
    """The gang was not assembled in time: its waiting members end."""


class GangBroken(Exception):
    """A member cannot start: another process has run it before, and has ended."""


class Gang:
    """The gang of the running task: `weft.tasks.current().gang`.

    gang = weft.tasks.current().gang
    first = gang.members[0]
    connect(first.address, first.port) if gang.rank else listen(first.port)
    """

    def __init__(
        self, app: App, job: str, epoch: str, rank: int, members: Sequence[GangMember]
    ) -> None:
        self._app = app
        self._epoch = epoch
        self._launches = 0
        #: The id of the job's future.
        self.job = job
        #: The number of this member, from 0.
        self.rank = rank
        #: All members, by rank, with host, address, a free port and process number.
        self.members = list(members)

    @property
    def size(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"<Gang {self.job}, rank {self.rank} of {self.size}>"

    def mpi(
        self, program: Sequence[str], *, ranks: int = 1, env: dict[str, str] | None = None
    ) -> MpiRun:
        """Runs an MPI program on the workers of the gang; all members call `mpi` alike.

            run = gang.mpi([sys.executable, "solver.py"], ranks=2)
            assert run.code == 0, run.output

        `ranks` is the number of MPI ranks for each member. Rank 0 of the gang gets the output.
        mpiexec starts no remote shell: the members start the processes. Raises MissingExtra without
        MPICH (`weft[mpi]`), and TaskFailed if the launch breaks.
        """
        from .mpi_launch import MpiLaunch

        self._launches += 1
        launch = MpiLaunch(self._app, self, self._epoch, self._launches, ranks, env or {})
        return launch.run(list(program))


def run_member(
    gang: GangTask, job: str, epoch: str, rank: int, size: int, args: bytes, words: bytes
) -> Any:
    """The function of the task of a member."""
    from weft.tasks.task_context import current

    values, keywords = gang.signature.unpack(args, words)
    app = gang.app
    _join(app, job, epoch, rank)
    members = _started(app, job, epoch)
    current().gang = Gang(app, job, epoch, rank, members)
    return gang.function(*values, **keywords)


def _join(app: App, job: str, epoch: str, rank: int) -> None:
    address = own_address(app.servers)
    with socket.socket() as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
    row = GangMember(rank, socket.gethostname(), address, port, os.getpid())
    key = f"{roster_prefix(app.name, job, epoch)}{rank:04x}"
    try:
        app.client.kv.insert(key, encode(row), ttl_ms=RECORD_TTL_MS, if_version=0)
    except VersionMismatch:
        raise GangBroken(
            f"rank {rank} of the gang has been started by another worker, which has stopped"
        ) from None


def _started(app: App, job: str, epoch: str) -> list[GangMember]:
    """Waits for the start of the epoch. The coordinator of the job ends the wait in any case, or
    the next one after its death."""
    pause = _POLL_S_MIN
    while True:
        data = app.client.kv.lookup(state_key(app.name, job))
        state = None if data is None else msgspec.msgpack.decode(data, type=GangState)
        if state is None or state.epoch != epoch or state.phase not in (ASSEMBLING, RUNNING):
            raise GangReleased("the gang was not assembled: the worker is free again")
        if state.phase == RUNNING:
            return state.members
        time.sleep(pause)
        pause = min(1.5 * pause, _POLL_S_MAX)


def own_address(servers: str | None) -> str:
    """The address from which this machine reaches the cluster."""
    first = (servers or os.environ.get("WEFT_SERVERS") or "").split(",")[0].strip()
    host, _, port = first.rpartition(":")
    place = (host.strip("[]"), int(port)) if host and port.isdigit() else DEFAULT_SERVER
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(place)  # sends nothing: the kernel chooses the address
            return str(probe.getsockname()[0])
        except OSError:
            return DEFAULT_SERVER[0]
