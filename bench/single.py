"""Single messages through the Python client: CPU time of a push, a pop and an ack, by version.

    python bench/single.py [--baseline CHECKOUT] [--client asyncio|threads] [--in-flight 32]
                           [--nodes 1] [--durability os] [--messages 3000] [--turns 5]

A worker with `--in-flight` callers pushes, pops and acks messages one by one; each caller waits for
each answer. With `--baseline`, the path of another checkout with its own `.venv`, the two versions
take turns in the same run, each with its own nodes and its own client: a shared machine changes its
speed from minute to minute, but not much within a turn. The figure to compare is the CPU time of
the nodes for a message (`/proc/PID/stat`, user and system), which other processes disturb least.
Prints the median over the turns, and the ratio to the baseline.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import weft
import weft.aio
from weft.testing import cluster

QUEUE: Final = "single"
BODY: Final = bytes(range(128))
WAIT_MS: Final = 20_000
WARM_UP: Final = 200
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, user and system, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def _callers(queue: weft.aio.Queue, messages: int, in_flight: int) -> None:
    left = iter(range(messages))

    async def caller() -> None:
        for _ in left:
            await queue.push(BODY)
            message = await queue.pop(wait_ms=WAIT_MS)
            assert message is not None
            await message.ack()

    await asyncio.gather(*(caller() for _ in range(in_flight)))


def _threads(queue: weft.Queue, messages: int, in_flight: int) -> None:
    left = iter(range(messages))

    def caller() -> None:
        for _ in left:
            queue.push(BODY)
            message = queue.pop(wait_ms=WAIT_MS)
            assert message is not None
            message.ack()

    threads = [threading.Thread(target=caller) for _ in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def serve_turns(asked: argparse.Namespace) -> None:
    """Runs one turn for each line of input, and prints the turn's figures as a line of JSON."""
    with cluster(asked.nodes, durability=asked.durability) as made:
        pids = [made.node(number).pid for number in range(asked.nodes)]

        def turns(run: Callable[[int], None]) -> None:
            run(WARM_UP)
            print("ready", flush=True)
            for _ in sys.stdin:
                node_s, client_s, began = sum(map(cpu_s, pids)), time.process_time(), time.time()
                run(asked.messages)
                took_s = time.time() - began
                figures = {
                    "node_us": (sum(map(cpu_s, pids)) - node_s) / asked.messages * 1e6,
                    "client_us": (time.process_time() - client_s) / asked.messages * 1e6,
                    "per_second": asked.messages / took_s,
                }
                print(json.dumps(figures), flush=True)

        if asked.client == "threads":
            with weft.connect(made.servers) as client:
                client.create_queue(QUEUE)
                queue = client.queue(QUEUE)
                turns(lambda messages: _threads(queue, messages, asked.in_flight))
        else:
            with asyncio.Runner() as runner:
                aio = runner.run(_connect(made.servers))
                turns(
                    lambda messages: runner.run(
                        _callers(aio.queue(QUEUE), messages, asked.in_flight)
                    )
                )
                runner.run(aio.close())


async def _connect(servers: list[str]) -> weft.aio.Client:
    client = await weft.aio.connect(servers)
    await client.create_queue(QUEUE)
    return client


class Version:
    """The process of one version, with its nodes and its client."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self.turns: list[dict[str, float]] = []
        command = [python, str(Path(__file__).resolve()), "--serve-turns", *sys.argv[1:]]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"the worker of {name} did not start: {' '.join(command)}")

    def take_turn(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        self.turns.append(json.loads(self._process.stdout.readline()))

    def median(self, figure: str) -> float:
        return statistics.median(turn[figure] for turn in self.turns)

    def end(self) -> None:
        self._process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--baseline", type=Path, help="another checkout, with its own .venv")
    parser.add_argument("--client", choices=("asyncio", "threads"), default="asyncio")
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--durability", choices=("disk", "os"), default="os")
    parser.add_argument("--messages", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--serve-turns", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve_turns:
        serve_turns(asked)
        return 0
    versions = [Version("here", sys.executable)]
    if asked.baseline is not None:
        versions.append(Version("baseline", str(asked.baseline / ".venv" / "bin" / "python")))
    for _ in range(asked.turns):
        for version in versions:
            version.take_turn()
    for version in versions:
        version.end()
    print(
        f"{asked.client}, {asked.in_flight} in flight, {asked.nodes} node(s), {asked.durability}:"
        f" medians of {asked.turns} turns of {asked.messages} messages"
    )
    here = versions[0]
    for name, unit in (
        ("node_us", "us of CPU for a message, nodes"),
        ("client_us", "us of CPU for a message, client"),
        ("per_second", "messages/s"),
    ):
        line = f"{here.median(name):10.1f} {unit}"
        if len(versions) > 1:
            before = versions[1].median(name)
            line += f", baseline {before:.1f}, ratio {here.median(name) / before:.3f}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
