"""Runs while workers and drivers are killed, spill files vanish, and disks fill up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import weft
from tests.process.test_full_disk import _mounted as mounted
from tests.tasks import lengths
from tests.tasks.map_reduce_reference import (
    count_reference,
    counted,
    lines_of,
    output_of,
    plan_of,
    some_text,
    sorted_reference,
)
from weft.tasks import mapreduce
from weft.tasks.mapreduce import job, weft_engine
from weft.tasks.mapreduce.job_plan import save_outputs
from weft.tasks.mapreduce.line_flow import SortFlow
from weft.tasks.mapreduce.output_folder import OutputFolder, UnfinishedRun
from weft.tasks.testing import worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    for app in (mapreduce.app, lengths.app):
        app.connect(node.servers)
    yield
    for app in (mapreduce.app, lengths.app):
        app.close()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def started(node: Cluster, *words: str, **environment: str) -> subprocess.Popen[str]:
    """`weft run` in a process of its own group."""
    return subprocess.Popen(
        [sys.executable, "-m", "weft.client.cli.main", "run", *words],
        cwd=ROOT,
        env={**os.environ, "WEFT_SERVERS": ",".join(node.servers), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def test_a_worker_process_is_killed_in_a_map(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    marker = tmp_path / "killed"
    (source / "x").write_text(f"one\n!kill {marker}\nthree\n" + "four\n" * 1000)
    summary = lengths.combined.run(source, tmp_path / "first", partition_bytes="1K", workers=2)
    assert not marker.exists(), "this job has no such mistake"
    lengths.job.run(source, tmp_path / "out", partition_bytes="1K", workers=2)
    assert marker.exists(), "the worker was killed"
    rows = dict(line.split("\t") for line in output_of(tmp_path / "out").decode().splitlines())
    assert sum(json.loads(value)["lines"] for value in rows.values()) == 1003
    assert summary.input_lines == 1003


def test_a_worker_process_is_killed_in_a_reduce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "killed"
    monkeypatch.setenv("WEFT_TEST_MARKER", str(marker))
    lines = some_text(tmp_path / "in")
    lengths.killer.run(tmp_path / "in", tmp_path / "out", partition_bytes="4K", workers=2)
    assert marker.exists(), "the worker was killed"
    firsts = counted(output_of(tmp_path / "out"))
    assert firsts == {
        first: sum(line[:1] == first for line in lines) for first in {line[:1] for line in lines}
    }


def test_the_workers_of_a_run_are_killed(tmp_path: Path, node: Cluster) -> None:
    """The supervisor is gone: the run fails at once, with a message, and leaves nothing."""
    gate = tmp_path / "gate"
    (tmp_path / "in").write_text(f"!wait {gate}\n")
    process = started(
        node, "tests.tasks.lengths:job", f"{tmp_path}/in", f"{tmp_path}/out", "-c", "1"
    )
    until(lambda: _supervisor(process.pid) is not None, "no worker has started")
    pid = _supervisor(process.pid)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    code, _, err = ended(process)
    assert code == 1
    assert "the workers of the run have ended with exit code -9" in err
    assert not (tmp_path / "out").exists()


def _supervisor(driver: int) -> int | None:
    """The `weft worker` of a driver."""
    for task in Path(f"/proc/{driver}/task").iterdir():
        try:
            for child in (task / "children").read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"\0worker\0" in command:
                    return int(child)
        except FileNotFoundError:
            continue  # a thread, or a child, that has just ended
    return None


def test_a_driver_is_killed_and_the_run_continues(tmp_path: Path, node: Cluster) -> None:
    """With workers of the app: the results of the finished maps are read, not made again."""
    gate = tmp_path / "gate"
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}").write_text("x\n" * 600)
    (tmp_path / "in" / "last").write_text(f"!wait {gate}\n")
    words = ["tests.tasks.lengths:job", f"{tmp_path}/in", f"{tmp_path}/out", "-c", "0", "--json",
             "--partition-bytes", "1.5K"]  # fmt: skip
    spill = tmp_path / "out" / "_weft" / "spill"
    with worker_process("tests.tasks.lengths:app", node.servers, folder=ROOT):
        first = started(node, *words)
        until(lambda: len(list(spill.glob("map-*"))) >= 3, "the maps have not begun")
        made = {path.name: path.stat().st_ino for path in spill.glob("map-*")}
        assert not (tmp_path / "out" / "_SUCCESS").exists()
        busy = started(node, *words)
        code, _, err = ended(busy)
        assert (code, "another run writes to" in err) == (1, True)
        first.kill()
        first.wait()
        other = started(node, *words, "--reducers", "2")
        code, _, err = ended(other)
        assert (code, "holds an unfinished run of other arguments" in err) == (2, True)
        second = started(node, *words)
        time.sleep(1.0)  # the run reads its results; it must not end before the gate opens
        assert second.poll() is None
        assert {path.name: path.stat().st_ino for path in spill.glob("map-*")} == made
        gate.touch()
        code, out, err = ended(second)
    assert code == 0, err
    assert json.loads(out)["resumed"] is True
    rows = dict(line.split("\t") for line in output_of(tmp_path / "out").decode().splitlines())
    assert json.loads(rows["1"])["lines"] == 2400
    for process in (first, busy, other, second):
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


@pytest.mark.slow
def test_a_driver_is_killed_with_its_own_workers(tmp_path: Path, node: Cluster) -> None:
    """The tasks that the dead workers held come back when their leases end, after 30 s."""
    gate = tmp_path / "gate"
    (tmp_path / "in").write_text("x\n" * 5000 + f"!wait {gate}\n")
    words = ["tests.tasks.lengths:job", f"{tmp_path}/in", f"{tmp_path}/out", "-c", "1", "--json",
             "--partition-bytes", "2K"]  # fmt: skip
    first = started(node, *words)
    spill = tmp_path / "out" / "_weft" / "spill"
    until(lambda: len(list(spill.glob("map-*"))) >= 2, "the maps have not begun")
    first.kill()
    first.communicate(timeout=TIMEOUT_S)
    gate.touch()
    code, out, err = ended(started(node, *words))
    assert code == 0, err
    assert json.loads(out)["resumed"] is True
    assert output_of(tmp_path / "out").count(b"\n") == 2
    with node.client() as client:
        left = [each.name for each in client.list_queues("lengths.run-")]
    assert left == []


@pytest.mark.parametrize(("before", "own"), [("", False), ("default", False), ("run-1", True)])
def test_the_queue_of_a_run_that_continues(tmp_path: Path, before: str, own: bool) -> None:
    """A run of Spark, or on the workers of the app, has left no queue of its own."""
    plan = plan_of(tmp_path, tmp_path, SortFlow(), partition_bytes=1024, reducers=1)
    found = UnfinishedRun(plan, before)
    queue = weft_engine.WeftEngine(1).queue_of(mapreduce.sort, found)
    assert queue.startswith("run-")
    assert (queue == before) is own
    assert weft_engine.WeftEngine(0).queue_of(mapreduce.sort, found) == "default"


@pytest.mark.parametrize("damage", ["removed", "changed", "truncated"])
def test_a_lost_or_damaged_block_runs_its_map_again(tmp_path: Path, damage: str) -> None:
    lines = some_text(tmp_path / "in", lines=2000)
    hurt: list[str] = []

    def hurt_two(stage: str, done: int, tasks: int) -> None:
        if (stage, done) == ("reduce", 0):
            for path in sorted((tmp_path / "spill").glob("*/map-*"))[1:3]:
                hurt.append(path.name)
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                if damage == "removed":
                    path.unlink()
                else:
                    path.write_bytes(data if damage == "changed" else data[:-5])

    summary = mapreduce.sort.run(
        tmp_path / "in", tmp_path / "out", partition_bytes="16K", reducers=3, workers=2,
        spill=tmp_path / "spill", progress=hurt_two,
    )  # fmt: skip
    assert len(hurt) == 2
    assert summary.repaired == 2
    assert output_of(tmp_path / "out") == sorted_reference(lines)
    assert list((tmp_path / "spill").iterdir()) == [], "the spill folder of the run is removed"


def test_blocks_that_are_lost_again_and_again_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_text(tmp_path / "in")
    monkeypatch.setattr(weft_engine, "REPAIRS_MAX", 1)

    def remove(folder: str, checksums: list[int]) -> tuple[str, int]:
        for path in Path(folder).glob("map-*"):
            path.unlink()
        return save_outputs(folder, checksums)

    monkeypatch.setattr(weft_engine, "save_outputs", remove)
    with pytest.raises(weft.JobFailed, match="are lost or damaged after 1 repairs"):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


def test_an_input_that_changes_fails_the_run(tmp_path: Path) -> None:
    some_text(tmp_path / "in")

    def change(stage: str, done: int, tasks: int) -> None:
        if (stage, done) == ("reduce", 0):
            with (tmp_path / "in" / "text-1").open("ab") as file:
                file.write(b"more\n")

    with pytest.raises(weft.JobFailed, match=r"text-1 has changed since the start"):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "out", workers=1, progress=change)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("full", ["spill", "out"])
def test_a_full_disk_fails_the_run_and_names_the_folder(tmp_path: Path, full: str) -> None:
    mapreduce.generate("records", tmp_path / "in", size="3M")
    with mounted(tmp_path / "disk", 1 << 20) as disk:
        folders = {"spill": tmp_path / "spill", "out": tmp_path / "out", full: disk / full}
        with pytest.raises(weft.JobFailed, match=f"no space left on the disk of {disk}/{full}"):
            mapreduce.sort.run(
                tmp_path / "in", folders["out"], workers=1, partition_bytes="256K",
                spill=folders["spill"],
            )  # fmt: skip
        assert not folders["out"].exists()
        assert not list(folders["spill"].glob("*"))


def test_results_that_are_gone_are_made_again(
    tmp_path: Path, node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of the run vanish, as after the restore of an old backup."""
    lines = some_text(tmp_path / "in")
    monkeypatch.setattr(weft_engine, "POLL_S", 0.3)
    real = weft_engine.JobDriver.begin_maps

    def begin(driver: weft_engine.JobDriver, *arguments: object) -> None:
        real(driver, *arguments)  # type: ignore[arg-type]
        mapreduce.app.client.queue(driver._queue).purge()

    monkeypatch.setattr(weft_engine.JobDriver, "begin_maps", begin)
    mapreduce.wordcount.run(tmp_path / "in", tmp_path / "out", partition_bytes="4K", workers=1)
    assert counted(output_of(tmp_path / "out")) == count_reference(lines_of(tmp_path / "in"))
    assert lines


def test_a_node_is_killed_during_a_run(tmp_path: Path) -> None:
    """The only node dies and returns with its data: the driver and the workers wait."""
    from weft.testing import cluster

    lines = some_text(tmp_path / "in", lines=4000)
    with cluster(1) as nodes:
        mapreduce.app.connect(nodes.servers)
        killed: list[int] = []

        def kill(stage: str, done: int, tasks: int) -> None:
            if stage == "map" and done >= tasks // 3 and not killed:
                killed.append(done)
                nodes.kill(0)
                nodes.start(0)

        mapreduce.sort.run(
            tmp_path / "in", tmp_path / "out", partition_bytes="4K", workers=2, progress=kill
        )
        mapreduce.app.close()
    assert killed
    assert output_of(tmp_path / "out") == sorted_reference(lines)


def test_each_output_has_its_own_spill_folder_and_removes_no_other(tmp_path: Path) -> None:
    """The notes of an unfinished run are a file in the output, which anyone may have written."""
    first, second = OutputFolder("/data/a/b_c", False), OutputFolder("/data/a_b/c", False)
    folders = [job._spill_folder(tmp_path, each) for each in (first, second)]
    assert folders[0] != folders[1]
    for folder in folders:
        Path(folder).mkdir()
        job._remove_spill(folder, first)
    assert [os.path.exists(folder) for folder in folders] == [False, True]
