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
from tests.mpsc.mpi_job import HERE, MEMORIES, ROOT, RUN_SECONDS_MAX, environment, mpiexec
from tests.mpsc.test_mpsc_gateway import everything

pytestmark = pytest.mark.process
WEFT = [sys.executable, "-m", "weft.client.cli.main"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[weft.testing.Cluster]:
    with weft.testing.cluster(nodes=1) as cluster:
        yield cluster


def start(
    cluster: weft.testing.Cluster,
    options: list[str],
    program: list[str],
    ranks: int = 4,
    memory: str = "shared",
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [mpiexec(), "-n", str(ranks), *WEFT, "mpi-gateway", *options, "--json", "--", *program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(memory), "WEFT_SERVERS": cluster.servers[0]},
    )


def program(what: str, folder: Path) -> list[str]:
    return [sys.executable, str(HERE / "command_program.py"), what, str(folder)]


def end(process: subprocess.Popen[str]) -> tuple[dict[str, object], str]:
    """The gateway's totals, and the rest of the output."""
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
    assert totals == {"pushed": 3 * ITEMS, "done": 0, "dead": [], "refused": 0}
    assert {(tmp_path / f"flushed-{rank}").read_text()[0] for rank in range(3)} == {"3"}
    expected = Counter(f"{rank}:{at}".encode() for rank in range(3) for at in range(ITEMS))
    assert everything(cluster, "events") == expected


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_dead_rank_does_not_stop_the_others(
    cluster: weft.testing.Cluster, tmp_path: Path, memory: str
) -> None:
    create(cluster, f"survived-{memory}")
    process = start(
        cluster, ["--queue", f"survived-{memory}"], program("send-and-die", tmp_path), memory=memory
    )
    kill(process, tmp_path / "flushed-1")
    wait_for(process, tmp_path / "flushed-0", tmp_path / "flushed-2")
    (tmp_path / "killed").touch()
    totals, errors = end(process)
    assert totals["dead"] == [2], errors[-3000:]
    assert process.returncode != 0, "a job in which a rank died has not gone well"
    found = everything(cluster, f"survived-{memory}")
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


@pytest.mark.parametrize("memory", MEMORIES)
def test_messages_go_to_ranks_and_answers_come_back(
    cluster: weft.testing.Cluster, tmp_path: Path, memory: str
) -> None:
    create(cluster, f"jobs-{memory}", f"answers-{memory}", bodies=1000)
    options = ["--from", f"jobs-{memory}", "--queue", f"answers-{memory}", "--idle-ms", "300"]
    process = start(cluster, options, program("work", tmp_path), memory=memory)
    totals, errors = end(process)
    assert process.returncode == 0, errors[-3000:]
    assert totals == {"pushed": 1000, "done": 1000, "dead": [], "refused": 0}
    answers = [
        body.decode().split(" by ") for body in everything(cluster, f"answers-{memory}").elements()
    ]
    assert sorted(job for job, _ in answers) == sorted(f"job {at}" for at in range(1000))
    assert {rank for _, rank in answers} == {"0", "1", "2"}, "every rank had some"
    with cluster.client() as client:
        stats = client.queue(f"jobs-{memory}").stats()
        assert (stats.ready, stats.leased) == (0, 0), "all are acknowledged"


@pytest.mark.parametrize("memory", MEMORIES)
def test_what_a_dead_rank_had_goes_to_others(
    cluster: weft.testing.Cluster, tmp_path: Path, memory: str
) -> None:
    create(cluster, f"risky-{memory}", f"risen-{memory}", bodies=60, lease_ms=600_000)
    options = [
        "--from",
        f"risky-{memory}",
        "--queue",
        f"risen-{memory}",
        "--idle-ms",
        "300",
        "--ahead",
        "8",
    ]
    process = start(cluster, options, program("work-and-die", tmp_path), memory=memory)
    kill(process, tmp_path / "flushed-1")
    totals, errors = end(process)
    assert totals["dead"] == [2], errors[-3000:]
    found = Counter(
        body.decode().split(" by ")[0] for body in everything(cluster, f"risen-{memory}")
    )
    assert set(found) == {f"job {at}" for at in range(60)}, "the leases of ten minutes did not end"
    with cluster.client() as client:
        stats = client.queue(f"risky-{memory}").stats()
        assert (stats.ready, stats.leased) == (0, 0)


def test_what_a_rank_was_not_done_with_when_it_left_goes_to_others(
    cluster: weft.testing.Cluster, tmp_path: Path
) -> None:
    create(cluster, "left", "taken", bodies=40, lease_ms=600_000)
    options = ["--from", "left", "--queue", "taken", "--idle-ms", "300", "--ahead", "8"]
    process = start(cluster, options, program("leave-early", tmp_path))
    totals, errors = end(process)
    assert process.returncode == 0, errors[-3000:]
    assert totals == {"pushed": 40, "done": 40, "dead": [], "refused": 0}
    found = Counter(body.decode().split(" by ")[0] for body in everything(cluster, "taken"))
    assert found == Counter(f"job {at}" for at in range(40))


def test_a_message_larger_than_the_ring_does_not_end_the_gateway(
    cluster: weft.testing.Cluster, tmp_path: Path
) -> None:
    """Messages that are too large do not end the gateway.

    A message that is too large to receive becomes a dead letter; a message that is too large to
    send is an error of its sender alone. Another algorithm than the default carries the answers.
    """
    create(cluster, "buried", "small")
    with cluster.client() as client:
        client.create_queue("mixed", lease_ms=600_000, dead_letter="buried", max_deliveries=1)
        bodies = [f"job {at}".encode() for at in range(40)]
        client.queue("mixed").push_many([*bodies[:20], bytes(5000), *bodies[20:]])
    options = ["--from", "mixed", "--queue", "small", "--idle-ms", "300", "--ring-bytes", "4096"]
    options += ["--algorithm", "slotqueue"]
    process = start(cluster, options, program("send-too-much", tmp_path))
    totals, errors = end(process)
    assert process.returncode == 0, errors[-3000:]
    assert totals == {"pushed": 40, "done": 40, "dead": [], "refused": 1}
    assert "5000 bytes" in errors
    assert "4088 bytes" in errors
    found = Counter(body.decode().split(" by ")[0] for body in everything(cluster, "small"))
    assert found == Counter(body.decode() for body in bodies)
    assert everything(cluster, "buried") == Counter([bytes(5000)])
    for rank in range(3):
        assert "item_bytes=128" in (tmp_path / f"refused-{rank}").read_text()


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
        ("nowhere", PATIENT, 1, "the queue 'nowhere' does not exist"),
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
        (["--", "true"], "Pass --queue for ranks that send"),
        (["--queue", "events", "--idle-ms", "5", "--", "true"], "--idle-ms requires --from"),
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
