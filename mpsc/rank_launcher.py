"""``weft mpi-gateway`` on each rank: rank 0 runs the gateway, all others the program.

The launcher starts the command on every rank. Rank 0 becomes the gateway. Every other rank starts
the program as its child and stays as the child's supervisor; the child inherits everything that MPI
needs, including the connection to the launcher. The supervisor keeps a job alive when one rank
dies: the launcher watches its own children and their connections, and kills all ranks when one ends
without having finalized MPI. (MPICH's ``-disable-auto-cleanup`` is no cure: of ten jobs in which
one rank was killed, its Hydra 5.0.2 killed the others in three.) The supervisor of a dead rank
keeps the connection open until the gateway has ended, and only then passes the exit code on.

A rank that dies before it has opened the gateway, or after it has left the gateway, ends the job as
without this command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.errors import InvalidArgument, Unavailable, UsageError

from .abort import LEFT, OPENED, SUPERVISOR
from .liveness import WITNESS, RankLiveness
from .negotiation import ENVIRONMENT, GatewayOptions

if TYPE_CHECKING:
    from .gateway import Gateway

#: Environment variables with a process's rank and the number of ranks: MPICH and Intel, Open MPI,
#: Slurm.
LAUNCHERS: Final = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
#: More than the two lines that a child writes.
_TOLD_BYTES_MAX: Final = 4096
#: Time for the launcher to pass on printed output before it ends everything.
_LAST_WORDS_S: Final = 0.1


class RankPlace(NamedTuple):
    """The rank of this process, and the number of ranks."""

    rank: int
    size: int


def place(environment: Mapping[str, str]) -> RankPlace:
    """This process's rank, from the launcher's environment; only the program may initialize MPI."""
    for rank, size in LAUNCHERS:
        if rank in environment and size in environment:
            found = RankPlace(int(environment[rank]), int(environment[size]))
            if found.size < 2:
                raise UsageError(
                    "a gateway needs a rank of its own: mpiexec -n 2 or more, one for the gateway "
                    "and one for each process of the program"
                )
            return found
    raise UsageError(
        "no MPI launcher is seen: mpiexec -n 8 weft mpi-gateway --queue NAME -- PROGRAM"
    )


def supervise(program: Sequence[str], options: GatewayOptions) -> int:
    """Runs the program as this rank; returns its exit code, as a shell gives it."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    environment = {**os.environ, ENVIRONMENT: options.encode(), SUPERVISOR: str(writing)}
    # The launcher signals whole process groups: the child receives an interrupt directly.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Open files must stay open: one of them is the connection to the launcher.
    try:
        child = subprocess.Popen(
            program, env=environment, close_fds=False, preexec_fn=_default_interrupt
        )
    except OSError as error:
        raise InvalidArgument(f"{program[0]} cannot be started: {error.strerror}") from error
    os.close(writing)
    code = _as_a_shell(child.wait())
    os.set_blocking(reading, False)
    try:
        told = os.read(reading, _TOLD_BYTES_MAX).decode().splitlines()
    except BlockingIOError:
        told = []  # a process left behind by the child still holds the other end
    os.close(reading)
    if not told:
        raise UsageError(
            f"{program[0]} ended with exit code {code} and has not called weft.mpsc.open(): the "
            "gateway and the other ranks would wait for it for ever"
        )
    if told[-1] != LEFT:
        _mourn(told[0].removeprefix(f"{OPENED} "))
    return code


def _as_a_shell(code: int) -> int:
    """A process killed by a signal has the exit code 128 plus the signal's number."""
    return code if code >= 0 else 128 - code


def _default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _mourn(address: str) -> None:
    """Keeps the launcher from ending the job until the gateway has ended."""
    try:
        RankLiveness(address, WITNESS).wait_for_the_end()
    except Unavailable:
        return  # the gateway has ended already


def join(
    options: GatewayOptions, servers: str | None, timeout_ms: int | None, wait_s: float
) -> Gateway:
    """Makes this rank the gateway of the job, when all others have opened the gateway."""
    from .gateway import check_queues, open

    check_queues(servers, timeout_ms, [name for name in (options.queue, options.source) if name])
    os.environ[ENVIRONMENT] = options.encode()
    return open(servers=servers, timeout_ms=timeout_ms, wait_s=wait_s)


def end_job(code: int) -> None:
    """Ends all ranks: this rank will not reach the point where they wait for it.

    Most launchers do so when a process ends with an exit code. MPICH's launcher does not unless MPI
    is initialized, which needs all ranks; so the abort is sent in the launcher's own protocol (PMI
    1).
    """
    channel = os.environ.get("PMI_FD")
    if channel is not None:
        time.sleep(_LAST_WORDS_S)
        os.write(int(channel), f"cmd=abort exitcode={code}\n".encode())
