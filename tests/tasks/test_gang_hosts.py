"""A gang on two hosts: an MPI program on members in different network namespaces, without ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.process.netns import Network, why_not

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_not()), reason=why_not())]

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
#: Submits from a host of its own, and prints the results.
SUBMIT = """
import json, sys
from tests.tasks import crew
size = int(sys.argv[1])
future = crew.allreduce.with_options(size=size, wait=True, assemble_timeout=60).submit(7)
members = crew.where.with_options(size=size, wait=True, assemble_timeout=60).submit()
print(json.dumps([future.result(90), members.result(90)]))
"""


@contextmanager
def process(command: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("w") as out:
        started = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield
    finally:
        started.terminate()
        try:
            started.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def logged(log: Path, text: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.05)


def test_an_allreduce_runs_on_members_of_two_hosts(tmp_path: Path) -> None:
    with Network("node", "a", "b") as network, ExitStack() as ends:
        place = f"{network.address('node')}:7700"
        weft = [sys.executable, "-m", "weft.client.cli.main"]
        # Between the hosts of the gang there is TCP alone.
        env = {**os.environ, "WEFT_SERVERS": place, "UCX_LOG_LEVEL": "error"}
        serve = [*weft, "serve", "--data", str(tmp_path / "data"), "--listen", place]
        serve += ["--durability", "os", "--insecure"]
        node = process([*network.within("node"), *serve], env, tmp_path / "node.log")
        ends.enter_context(node)
        logged(tmp_path / "node.log", "serv")
        for host in ("a", "b"):
            worker = [*weft, "worker", "tests.tasks.crew:app", "-c", "2", "--site", host]
            log = tmp_path / f"{host}.log"
            ends.enter_context(process([*network.within(host), *worker], env, log))
        for host in ("a", "b"):
            logged(tmp_path / f"{host}.log", "takes crew.gangs")
        said = network.run("node", [sys.executable, "-c", SUBMIT, "4"], env=env, cwd=ROOT)
        ((code, output), *others), addresses = json.loads(said)
        assert (code, others) == (0, [[0, ""]] * 3)
        assert sorted(output.split("\n")[:-1]) == [f"rank {n} of 4: 70" for n in range(4)]
        # Four members on four slots: two of each host.
        assert sorted(addresses) == sorted([network.address("a"), network.address("b")] * 2)
