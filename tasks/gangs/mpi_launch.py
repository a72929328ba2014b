"""Starts an MPI program on the members of a gang, without ssh.

| step | rank 0 | the other members |
|---|---|---|
| 1 | runs ``mpiexec -launcher manual``, which prints one command for each host, and waits | wait |
| 2 | stores the commands in the hash table | read them |
| 3 | runs the command of its host | the first member of each other host runs its command |
| 4 | stores exit code when mpiexec has ended | read it, and return the same |

Members with one address are one host: one command starts the ranks of them all. Every process runs
under a guard (`process_guard`), so a killed worker takes its ranks along; MPI then ends the others,
and the monitor of the gang the rest.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from weft.client import arguments
from weft.errors import MissingExtra, TaskFailed
from weft.tasks.signature import encode

from .gang_job import RECORD_TTL_MS, launch_key

if TYPE_CHECKING:
    from weft.tasks.app import App

    from .gang_member import Gang

T = TypeVar("T")

RANKS_MAX: Final = 1_024
#: The last characters of the program's output that are kept.
OUTPUT_CHARS: Final = 64_000
_LAUNCH: Final = "HYDRA_LAUNCH:"
_LAUNCH_END: Final = "HYDRA_LAUNCH_END"
#: mpiexec prints its commands at once.
START_S: Final = 30.0
_POLL_S_MIN, _POLL_S_MAX = 0.02, 0.5
_GUARD: Final = str(Path(__file__).with_name("process_guard.py"))


class MpiRun(NamedTuple):
    """The end of an MPI program."""

    #: The exit code of mpiexec: 0 if all ranks have succeeded.
    code: int
    #: The output of all ranks, at rank 0 of the gang; empty at the others.
    output: str


class MpiLaunch:
    def __init__(
        self, app: App, gang: Gang, epoch: str, number: int, ranks: int, env: dict[str, str]
    ) -> None:
        arguments.check_integer("ranks", ranks, 1, RANKS_MAX)
        self._kv = app.client.kv
        self._gang = gang
        self._ranks = ranks
        self._env = env
        self._place = (app.name, gang.job, epoch, number)
        #: Members by address, in the order of ranks: the hosts of mpiexec.
        self._hosts = Counter(member.address for member in gang.members)

    def run(self, program: list[str]) -> MpiRun:
        if not program or not all(isinstance(word, str) for word in program):
            raise arguments.wrong_type("program", "a list of words", program)
        if self._gang.rank == 0:
            return self._lead(program)
        return self._follow()

    def _key(self, part: str) -> str:
        return launch_key(*self._place, part)

    def _lead(self, program: list[str]) -> MpiRun:
        me = self._gang.members[0]
        hosts = ",".join(f"{host}:{count * self._ranks}" for host, count in self._hosts.items())
        command = [_mpiexec(), "-launcher", "manual", "-localhost", me.address, "-hosts", hosts]
        for name, value in self._env.items():
            command += ["-genv", name, value]
        command += ["-n", str(self._ranks * self._gang.size), *program]
        reader = _OutputReader(command)
        proxy: subprocess.Popen[bytes] | None = None
        try:
            lines = reader.commands()
            if len(lines) != len(self._hosts):
                raise TaskFailed(f"mpiexec has not printed its commands: {reader.text[-2000:]}")
            self._kv.insert(self._key("commands"), encode(lines), ttl_ms=RECORD_TTL_MS)
            proxy = _guarded(_local(lines[0]))
            code = _wait(reader.process)
            output = reader.rest()
            self._kv.insert(self._key("end"), encode(code), ttl_ms=RECORD_TTL_MS)
            return MpiRun(code, output)
        finally:
            _end(proxy)
            _end(reader.process)

    def _follow(self) -> MpiRun:
        me = self._gang.members[self._gang.rank]
        firsts = {member.address: member.rank for member in reversed(self._gang.members)}
        commands = self._read("commands", list[list[str]])
        proxy: subprocess.Popen[bytes] | None = None
        try:
            if firsts[me.address] == me.rank:
                proxy = _guarded(_local(commands[list(self._hosts).index(me.address)]))
            return MpiRun(self._read("end", int), "")
        finally:
            _end(proxy)

    def _read(self, part: str, wanted: type[T]) -> T:
        """Waits for a row of rank 0; the monitor of the gang ends the wait if rank 0 is lost."""
        pause = _POLL_S_MIN
        while (data := self._kv.lookup(self._key(part))) is None:
            time.sleep(pause)
            pause = min(1.5 * pause, _POLL_S_MAX)
        return msgspec.msgpack.decode(data, type=wanted)


class _OutputReader:
    """mpiexec with a thread that reads its output: first the commands, then the program's."""

    def __init__(self, command: list[str]) -> None:
        self.process = _guarded(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.text = ""
        self._lines: list[list[str]] = []
        self._printed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="weft-mpi", daemon=True)
        self._thread.start()

    def commands(self) -> list[list[str]]:
        self._printed.wait(START_S)
        return self._lines

    def rest(self) -> str:
        self._thread.join(START_S)
        return self.text

    def _read(self) -> None:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            line = raw.decode(errors="replace")
            if not self._printed.is_set() and line.startswith(_LAUNCH):
                self._lines.append(shlex.split(line.removeprefix(_LAUNCH)))
            elif not self._printed.is_set() and line.startswith(_LAUNCH_END):
                self._printed.set()
            else:
                self.text = (self.text + line)[-OUTPUT_CHARS:]
        self._printed.set()


def _mpiexec() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise MissingExtra("there is no mpiexec: pip install 'weft[mpi]', or load the MPICH module")
    return found


def _local(command: list[str]) -> list[str]:
    """The command of mpiexec with the proxy of this machine, where the paths differ."""
    if not os.path.exists(command[0]):
        return [str(Path(_mpiexec()).with_name(os.path.basename(command[0]))), *command[1:]]
    return command


def _guarded(command: list[str], **options: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-S", _GUARD, *command], stdin=subprocess.PIPE, **options
    )


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Waits in short steps, so that a cancel interrupts."""
    pause = _POLL_S_MIN
    while (code := process.poll()) is None:
        time.sleep(pause)
        pause = min(1.5 * pause, _POLL_S_MAX)
    return code


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """Has the guard kill what still runs."""
    if process is None:
        return
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass  # the guard has ended
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
