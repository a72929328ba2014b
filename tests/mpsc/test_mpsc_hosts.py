"""Queues between two hosts: network namespaces, each with two ranks that share memory.

Hydra starts its proxy on another host through a "remote shell", which is a script here that enters
the host's namespace. TCP is the only transport between the two, as on a cluster without RDMA.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mpsc.mpi_job import HERE, environment, finish, mpiexec
from tests.mpsc.test_mpsc_mpi import check
from tests.process import netns

pytestmark = pytest.mark.process
HOSTS, RANKS_EACH, ITEMS = ("a", "b"), 2, 150


@pytest.fixture(scope="module")
def network() -> Iterator[netns.Network]:
    missing = netns.why_not()
    if missing:
        pytest.skip(missing)
    with netns.Network(*HOSTS) as network:
        yield network


def launch(network: netns.Network, shell: Path, command: list[str]) -> list[str]:
    """The command line that starts the command on all ranks of both hosts."""
    cases = "\n".join(
        f'{network.address(host)}) exec {shlex.join(network.within(host))} sh -c "$*" ;;'
        for host in HOSTS
    )
    # Called as `ssh [options] host command...`; the command comes quoted for a shell.
    shell.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
        f"case $host in\n{cases}\nesac\n"
    )
    shell.chmod(0o755)
    first = network.address(HOSTS[0])
    hosts = ",".join(f"{network.address(host)}:{RANKS_EACH}" for host in HOSTS)
    return [
        *network.within(HOSTS[0]), mpiexec(),
        "-launcher", "ssh", "-launcher-exec", str(shell), "-localhost", first,
        "-hosts", hosts, "-n", str(RANKS_EACH * len(HOSTS)), *command,
    ]  # fmt: skip


def between_hosts() -> dict[str, str]:
    """As apart, but ranks of one host do share memory."""
    return {name: text for name, text in environment("apart").items() if "NOLOCAL" not in name}


@pytest.mark.parametrize("algorithm", ["slotqueue", "sweepqueue", "dltqueue2"])
def test_a_queue_between_two_hosts(network: netns.Network, tmp_path: Path, algorithm: str) -> None:
    program = [sys.executable, str(HERE / "stress_program.py")]
    arguments = [algorithm, "4", str(ITEMS), "direct", str(tmp_path)]
    command = launch(network, tmp_path / "shell", [*program, *arguments])
    finish(command, between_hosts())
    check(tmp_path, ITEMS * (RANKS_EACH * len(HOSTS) - 1))


def test_each_host_shares_memory_within_itself_only(network: netns.Network, tmp_path: Path) -> None:
    text = (
        "from mpi4py import MPI; from weft.mpsc.mpi import MpiWindow; "
        "window = MpiWindow(MPI.COMM_WORLD, 8); "
        "near = [window.outlives(rank) for rank in range(4)]; "
        "print(f'{window.rank} {near}\\n', end='', flush=True); "
        "window.free()"
    )
    command = launch(network, tmp_path / "shell", [sys.executable, "-c", text])
    output = finish(command, between_hosts())
    for rank in range(4):
        near = [rank // RANKS_EACH == other // RANKS_EACH for other in range(4)]
        assert f"{rank} {near}" in output
