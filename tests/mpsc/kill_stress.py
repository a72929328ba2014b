"""Kill a producer with SIGKILL at a random step of its own, on real MPI.

The queue must become drained, and deliver every other item once and in order.

    python -m tests.mpsc.kill_stress --runs 50 [--memory apart] [--seed 1] [--algorithm slotqueue]

Each run is an MPI job. Every rank has a supervisor, which hides its death from mpiexec. The victim
counts the operations of its window and kills itself before a random one, or, in every third run,
after a random time, so that operations are in progress. The dequeuer learns of the death from the
victim's connection, abandons its rank and continues until the queue is drained.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.mpsc.mpi_job import ROOT, environment, mpiexec

#: dLTQueue keeps a word at each enqueuer that all others read: apart, no rank survives a death.
ALGORITHMS: Final = {
    "shared": ("slotqueue", "dltqueue", "dltqueue2", "sweepqueue", "spsc"),
    "apart": ("slotqueue", "dltqueue2", "sweepqueue", "spsc"),
}
ITEMS: Final = 300
STEPS_MAX: Final = 600
TIME_MAX_S: Final = 0.3
#: The dequeuer gives up, and with it the run, when no item has arrived for this long.
DRAIN_S: Final = 30.0
RUN_S: Final = 200.0
#: Window operations that count as steps of the victim.
STEPS: Final = ("load", "store", "fetch_add", "compare_swap", "put", "get", "flush")
VICTIM, DEQUEUER = 1, 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of one run, passed to its ranks."""

    algorithm: str
    seed: int
    folder: str

    @property
    def ranks(self) -> int:
        return 2 if self.algorithm == "spsc" else 4


def arm(window: Any, dice: random.Random) -> None:
    """Make the victim's process kill itself."""
    if dice.randrange(3) == 0:
        timer = threading.Timer(dice.uniform(0, TIME_MAX_S), _die)
        timer.daemon = True
        timer.start()
        return
    left = dice.randrange(STEPS_MAX)

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                _die()
            return operation(*arguments)

        return step

    for name in STEPS:
        setattr(window, name, counted(getattr(window, name)))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def rank_main(plan: Plan) -> None:
    """One rank of the job. It ends by _exit, because MPI_Finalize would wait for the dead rank."""
    from mpi4py import MPI

    from weft.mpsc import create
    from weft.mpsc.liveness import GatewayLiveness, RankLiveness

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    job = create(comm, algorithm=plan.algorithm, capacity=64, item_bytes=16, variable=True)
    lines = GatewayLiveness("127.0.0.1") if rank == DEQUEUER else None
    address = comm.bcast(lines.address if lines is not None else None, DEQUEUER)
    if lines is not None:
        lines.connect(set(range(1, plan.ranks)))
        report = drain(job, lines)
        Path(plan.folder, "report.json").write_text(json.dumps(report))
        os._exit(0)
    line = RankLiveness(address, rank)
    if rank == VICTIM:
        arm(job.window, random.Random(plan.seed))
    produce(job.enqueuer, rank, Path(plan.folder, f"enqueued-{rank}"))
    # Like a sender, a rank leaves when its items were taken: the dequeuer does not wait for it
    # then.
    wait_for_report(plan.folder)
    line.leave()
    os._exit(0)


def produce(enqueuer: Any, rank: int, note: Path) -> None:
    done = 0
    with note.open("w") as out:
        while done < ITEMS:
            if enqueuer.enqueue(f"{rank}:{done}".encode()):
                done += 1
                out.write(f"{done}\n")
                out.flush()
            else:
                time.sleep(0.0002)
    enqueuer.close()


def drain(job: Any, lines: Any) -> dict[str, Any]:
    from weft.errors import RankLost

    job.window.is_dead = lines.is_dead
    dequeuer, abandoned, items = job.dequeuer, set[int](), list[str]()
    deadline = time.monotonic() + DRAIN_S
    drained = False
    while not drained and time.monotonic() < deadline:
        lines.poll()
        for rank in lines.dead - abandoned:
            abandoned.add(rank)
            dequeuer.abandon(rank)
        try:
            single = dequeuer.dequeue() if len(items) % 2 else None
            got = [single] if single is not None else dequeuer.dequeue_many(16)
            items += [item.decode() for item in got]
            if got:
                deadline = time.monotonic() + DRAIN_S
            drained = dequeuer.drained()
        except RankLost as lost:
            abandoned.add(lost.rank)
            dequeuer.abandon(lost.rank)
    return {
        "drained": drained,
        "items": items,
        "dead": sorted(abandoned),
        "lost": dequeuer.lost,
        "state": f"waits for {dequeuer.waiting_for()}, backlog {dequeuer.backlog()}",
    }


def wait_for_report(folder: str) -> None:
    deadline = time.monotonic() + RUN_S
    while not Path(folder, "report.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def supervise(arguments: list[str], folder: str) -> None:
    """Run a rank, and exit only when the dequeuer has reported.

    Open files stay open: one of them is the rank's connection to the launcher.
    """
    command = [sys.executable, "-m", "tests.mpsc.kill_stress", *arguments]
    subprocess.Popen(command, close_fds=False).wait()
    wait_for_report(folder)


def run_once(algorithm: str, memory: str, seed: int) -> str:
    """Run once; return an empty string, or a description of the error."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(algorithm, seed, folder)
        words = [algorithm, str(seed), folder]
        command = [mpiexec(), "-n", str(plan.ranks), sys.executable, "-m", "tests.mpsc.kill_stress"]
        process = subprocess.Popen(
            [*command, "--supervise", *words], cwd=ROOT, env=environment(memory),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate()
            return f"the job hangs\n{output[-1500:]}"
        report = Path(folder, "report.json")
        if not report.exists():
            return f"the dequeuer ended without a report\n{output[-1500:]}"
        enqueued = {
            rank: len(Path(folder, f"enqueued-{rank}").read_text().splitlines())
            for rank in range(1, plan.ranks)
            if Path(folder, f"enqueued-{rank}").exists()
        }
        return judge(json.loads(report.read_text()), enqueued, plan.ranks)


def judge(report: dict[str, Any], enqueued: dict[int, int], ranks: int) -> str:
    if not report["drained"]:
        return f"never drained; dead: {report['dead']}, {report['state']}"
    serials: dict[int, list[int]] = {rank: [] for rank in range(1, ranks)}
    for item in report["items"]:
        rank, _, serial = item.partition(":")
        serials[int(rank)].append(int(serial))
    for rank, found in serials.items():
        count = enqueued.get(rank, 0)
        if found != list(range(len(found))):
            return f"items of rank {rank} are lost, doubled or out of order: {found}"
        if rank != VICTIM and len(found) != ITEMS:
            return f"{len(found)} of {ITEMS} items of rank {rank}; dead: {report['dead']}"
        # The item of the interrupted enqueue may be there. Two notes are never late.
        if rank == VICTIM and not count - report["lost"] <= len(found) <= count + 1:
            return f"{len(found)} items of the victim, which had enqueued {count}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", choices=sorted(ALGORITHMS), default="shared")
    parser.add_argument("--algorithm", help="one of the queues; in turn all, if it is left out")
    options = parser.parse_args()
    names = (options.algorithm,) if options.algorithm else ALGORITHMS[options.memory]
    wrong, started = 0, time.monotonic()
    for seed in range(options.seed, options.seed + options.runs):
        name = names[seed % len(names)]
        if trouble := run_once(name, options.memory, seed):
            wrong += 1
            print(f"seed {seed}, {name}, {options.memory}: {trouble}", flush=True)
    seconds = time.monotonic() - started
    print(f"{options.runs} runs, {options.memory}: {wrong} wrong, {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--supervise"]:
        supervise(["--rank", *sys.argv[2:]], sys.argv[4])
    elif sys.argv[1:2] == ["--rank"]:
        rank_main(Plan(sys.argv[2], int(sys.argv[3]), sys.argv[4]))
    else:
        sys.exit(main())
