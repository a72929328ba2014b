"""`mpiexec ... weft mpi-gateway ... -- program`: real ranks, a real node, and real kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft.testing
from tests.mpsc.command_program import ITEMS, WAIT_S
from tests.mpsc.test_mpsc_gateway import everything
from tests.mpsc.test_mpsc_mpi import HERE, ROOT, RUN_SECONDS_MAX, mpiexec

pytestmark = pytest.mark.process
WEFT = [sys.executable, "-m", "weft.client.cli.main"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[weft.testing.Cluster]:
    with weft.testing.cluster(nodes=1) as cluster:
        yield cluster


def start(
    cluster: weft.testing.Cluster, options: list[str], program: list[str], ranks: int = 4
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [mpiexec(), "-n", str(ranks), *WEFT, "mpi-gateway", *options, "--json", "--", *program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "WEFT_SERVERS": cluster.servers[0]},
    )


def program(what: str, folder: Path) -> list[str]:
    return [sys.executable, str(HERE / "command_program.py"), what, str(folder)]


def end(process: subprocess.Popen[str]) -> tuple[dict[str, object], str]:
    """The gateway's totals, and what was said besides."""
    try:
        out, errors = process.communicate(timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, errors = process.communicate()
        pytest.fail(f"it did not end:\n{out[-2000:]}\n{errors[-3000:]}")
    totals = out[out.index("{") : out.index("}") + 1] if "{" in out else "{}"
    return json.loads(totals), errors


def wait_for(process: subprocess.Popen[str], *paths: Path) -> None:
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while not all(path.exists() and path.read_text() for path in paths):
        if process.poll() is not None:
            pytest.fail(f"the job ended too soon:\n{end(process)[1][-3000:]}")
        assert time.monotonic() < deadline, f"no {paths}"
        time.sleep(0.01)


def kill(process: subprocess.Popen[str], mark: Path) -> None:
    wait_for(process, mark)
    os.kill(int(mark.read_text().split()[1]), signal.SIGKILL)


def create(
    cluster: weft.testing.Cluster, *names: str, bodies: int = 0, lease_ms: int = 30_000
) -> None:
    with cluster.client() as client:
        for name in names:
            client.create_queue(name, lease_ms=lease_ms)
        if bodies:
            client.queue(names[0]).push_many([f"job {at}".encode() for at in range(bodies)])


def test_the_program_finds_its_gateway(cluster: weft.testing.Cluster, tmp_path: Path) -> None:
    create(cluster, "events")
    process = start(cluster, ["--queue", "events"], program("send", tmp_path))
    totals, errors = end(process)
    assert process.returncode == 0, errors[-3000:]
    assert totals == {"pushed": 3 * ITEMS, "done": 0, "dead": []}
    assert {(tmp_path / f"flushed-{rank}").read_text()[0] for rank in range(3)} == {"3"}
    expected = Counter(f"{rank}:{at}".encode() for rank in range(3) for at in range(ITEMS))
    assert everything(cluster, "events") == expected


def test_a_dead_rank_does_not_stop_the_others(
    cluster: weft.testing.Cluster, tmp_path: Path
) -> None:
    create(cluster, "survived")
    process = start(cluster, ["--queue", "survived"], program("send-and-die", tmp_path))
    kill(process, tmp_path / "flushed-1")
    wait_for(process, tmp_path / "flushed-0", tmp_path / "flushed-2")
    (tmp_path / "killed").touch()
    totals, errors = end(process)
    assert totals["dead"] == [2], errors[-3000:]
    assert process.returncode != 0, "a job in which a rank died has not gone well"
    found = everything(cluster, "survived")
    flushed = [f"{rank}:{at}" for rank in range(3) for at in range(ITEMS)]
    later = [f"{rank}:later:{at}" for rank in (0, 2) for at in range(ITEMS)]
    assert all(found.pop(item.encode()) == 1 for item in flushed + later)
    assert set(found) <= {b"1:more"}
    assert totals["pushed"] == len(flushed) + len(later) + sum(found.values())


def test_senders_learn_of_a_failed_push_at_once(tmp_path: Path) -> None:
    with weft.testing.cluster(nodes=1) as cluster:
        create(cluster, "failing")
        options = ["--queue", "failing", "--timeout-ms", "1500"]
        process = start(cluster, options, program("fail", tmp_path))
        wait_for(process, *(tmp_path / f"flushed-{rank}" for rank in range(3)))
        cluster.kill(0)
        (tmp_path / "killed").touch()
        _, errors = end(process)
        assert process.returncode != 0
        assert '"code": "' in errors, "the gateway says why"
        for rank in range(3):
            seconds, _, message = (tmp_path / f"failed-{rank}").read_text().partition(" ")
            # The push's own time limit, and a moment more on a busy machine.
            assert float(seconds) < WAIT_S / 2, "by the sender's own time limit"
            assert f"{ITEMS} of this rank's {ITEMS + 1} items are stored" in message


def test_messages_go_to_ranks_and_answers_come_back(
    cluster: weft.testing.Cluster, tmp_path: Path
) -> None:
    create(cluster, "jobs", "answers", bodies=1000)
    options = ["--from", "jobs", "--queue", "answers", "--idle-ms", "300"]
    process = start(cluster, options, program("work", tmp_path))
    totals, errors = end(process)
    assert process.returncode == 0, errors[-3000:]
    assert totals == {"pushed": 1000, "done": 1000, "dead": []}
    answers = [body.decode().split(" by ") for body in everything(cluster, "answers").elements()]
    assert sorted(job for job, _ in answers) == sorted(f"job {at}" for at in range(1000))
    assert {rank for _, rank in answers} == {"0", "1", "2"}, "every rank had some"
    with cluster.client() as client:
        stats = client.queue("jobs").stats()
        assert (stats.ready, stats.leased) == (0, 0), "all are acknowledged"


def test_what_a_dead_rank_had_goes_to_others(cluster: weft.testing.Cluster, tmp_path: Path) -> None:
    create(cluster, "risky", "risen", bodies=60, lease_ms=600_000)
    options = ["--from", "risky", "--queue", "risen", "--idle-ms", "300", "--ahead", "8"]
    process = start(cluster, options, program("work-and-die", tmp_path))
    kill(process, tmp_path / "flushed-1")
    totals, errors = end(process)
    assert totals["dead"] == [2], errors[-3000:]
    found = Counter(body.decode().split(" by ")[0] for body in everything(cluster, "risen"))
    assert set(found) == {f"job {at}" for at in range(60)}, "the leases of ten minutes did not end"
    with cluster.client() as client:
        stats = client.queue("risky").stats()
        assert (stats.ready, stats.leased) == (0, 0)


def test_what_a_rank_was_not_done_with_when_it_left_goes_to_others(
    cluster: weft.testing.Cluster, tmp_path: Path
) -> None:
    create(cluster, "left", "taken", bodies=40, lease_ms=600_000)
    options = ["--from", "left", "--queue", "taken", "--idle-ms", "300", "--ahead", "8"]
    process = start(cluster, options, program("leave-early", tmp_path))
    totals, errors = end(process)
    assert process.returncode == 0, errors[-3000:]
    assert totals == {"pushed": 40, "done": 40, "dead": []}
    found = Counter(body.decode().split(" by ")[0] for body in everything(cluster, "taken"))
    assert found == Counter(f"job {at}" for at in range(40))


SILENT = ["true"]
PATIENT = ["sleep", "30"]
OTHER_SIZE = [sys.executable, "-c", "import weft.mpsc; weft.mpsc.open(item_bytes=3)"]
NOT_ALL = [
    sys.executable,
    "-c",
    "from mpi4py import MPI; import weft.mpsc; MPI.COMM_WORLD.rank == 2 or weft.mpsc.open()",
]


@pytest.mark.parametrize(
    ("queue", "what", "code", "says"),
    [
        ("nowhere", PATIENT, 1, "there is no queue 'nowhere'"),
        ("errors", ["./no-such-program"], 2, "./no-such-program cannot be started"),
        ("errors", SILENT, 1, "has not called weft.mpsc.open()"),
        ("errors", NOT_ALL, 1, "not all ranks have called weft.mpsc.open within 2 s"),
        ("errors", OTHER_SIZE, 2, "item_bytes is 128 on rank 0 and 3 on rank 1"),
    ],
)
def test_what_cannot_work_ends_the_job(
    cluster: weft.testing.Cluster, queue: str, what: list[str], code: int, says: str
) -> None:
    create(cluster, "errors")
    process = start(cluster, ["--queue", queue, "--wait-s", "2"], what, ranks=3)
    _, errors = end(process)
    assert says in errors
    assert process.returncode & code, "mpiexec puts the exit codes of ranks together by or"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--queue", "events", "--", "true"], "no MPI launcher is seen"),
        (["--", "true"], "Name a queue"),
        (["--queue", "events", "--idle-ms", "5", "--", "true"], "--idle-ms is about --from"),
        (["--queue", "events"], "Missing argument"),
        (["--queue", "events", "--item-bytes", "0", "--", "true"], "item_bytes must be 1 to"),
    ],
)
def test_a_wrong_command_is_refused(arguments: list[str], says: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PMI_")}
    ended = subprocess.run(
        [*WEFT, "mpi-gateway", *arguments],
        cwd=ROOT, capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert says in ended.stderr
