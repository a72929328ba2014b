"""Runs on a real node with real workers: output, options, bad input, the command."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import weft
from tests.tasks import lengths
from tests.tasks.map_reduce_reference import (
    count_reference,
    counted,
    grep_reference,
    lines_of,
    output_of,
    parts_of,
    some_text,
    sorted_reference,
)
from weft.client.cli.main import cli
from weft.errors import InvalidArgument, UsageError
from weft.tasks import mapreduce
from weft.tasks.mapreduce.output_folder import OutputFolder
from weft.tasks.testing import worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def connected(node: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for app in (mapreduce.app, lengths.app):
        app.connect(node.servers)
    yield
    for app in (mapreduce.app, lengths.app):
        app.close()


def command(*words: str, servers: str | None = None) -> Result:
    return CliRunner(env={"WEFT_SERVERS": servers}).invoke(cli, ["run", *words])


def queues(node: Cluster) -> set[str]:
    with node.client() as client:
        return {queue.name for queue in client.list_queues("mapreduce.")}


def test_the_three_jobs(tmp_path: Path, node: Cluster) -> None:
    lines = some_text(tmp_path / "in", lines=3000)
    seen: list[tuple[str, int, int]] = []
    summary = mapreduce.sort.run(
        tmp_path / "in", tmp_path / "sorted", partition_bytes="16K", reducers=3, workers=2,
        progress=lambda *stage: seen.append(stage),
    )  # fmt: skip
    assert output_of(tmp_path / "sorted") == sorted_reference(lines)
    assert len(parts_of(tmp_path / "sorted")) == 3
    assert all(parts_of(tmp_path / "sorted").values()), "each range has lines"
    assert summary.input_lines == summary.output_lines == len(lines)
    assert summary.output_bytes == len(output_of(tmp_path / "sorted"))
    assert (summary.job, summary.engine, summary.repaired) == ("sort", "weft", 0)
    assert [stage for stage in seen if stage[0] == "map"] == [
        ("map", done, summary.partitions) for done in range(summary.partitions + 1)
    ]
    assert seen[-1] == ("reduce", 3, 3)
    mapreduce.wordcount.run(tmp_path / "in", tmp_path / "words", partition_bytes="16K", workers=1)
    assert counted(output_of(tmp_path / "words")) == count_reference(lines)
    for pattern in ("a1", "^[0-9]+ .*f$"):
        out = tmp_path / f"grep-{len(pattern)}"
        mapreduce.grep.run(
            tmp_path / "in", out, pattern, partition_bytes="16K", reducers=2, workers=1
        )
        assert output_of(out) == grep_reference(lines, pattern)
    assert not any(name.startswith("mapreduce.run-") for name in queues(node))


def test_a_job_of_a_user_with_workers_that_run_already(tmp_path: Path, node: Cluster) -> None:
    lines = some_text(tmp_path / "in")
    groups: dict[str, list[bytes]] = {}
    for line in lines:
        groups.setdefault(str(len(line)), []).append(line[:1])
    wanted = {
        key: {"lines": len(values), "first": b"".join(sorted(values)).decode("latin-1")}
        for key, values in groups.items()
        if key != "0"
    }
    with worker_process("tests.tasks.lengths:app", node.servers, "-c", "2", folder=ROOT) as worker:
        worker.logged("takes")
        lengths.job.run(
            tmp_path / "in", tmp_path / "out", partition_bytes="4K", workers=0, reducers=2
        )
        lengths.combined.run(
            tmp_path / "in", tmp_path / "most", partition_bytes="4K", workers=0, reducers=2
        )
    rows = dict(line.split("\t") for line in output_of(tmp_path / "out").decode().splitlines())
    assert {key: json.loads(value) for key, value in rows.items()} == wanted
    most = Counter[int]()
    for line in lines:
        most[len(line) % 7] = max(most[len(line) % 7], len(line))
    found = output_of(tmp_path / "most").decode().splitlines()
    assert sorted(found) == sorted(f"{key}\t{value}" for key, value in most.items())


def test_the_same_output_with_any_partitions_and_workers(tmp_path: Path) -> None:
    some_text(tmp_path / "in", lines=2000)
    outputs = []
    for number, (size, workers) in enumerate([("4K", 2), ("1M", 1)]):
        out = tmp_path / f"out-{number}"
        mapreduce.wordcount.run(
            tmp_path / "in", out, partition_bytes=size, workers=workers, reducers=3
        )
        outputs.append(parts_of(out))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "an empty folder"),
        (b"", "an empty file"),
        (b"\n", "an empty line"),
        (bytes(range(256)).replace(b"\n", b"") * 40, "binary without a newline"),
        (b"short\n" + b"x" * 50_000 + b"\nlast", "a line of many partitions"),
    ],
)
def test_unusual_input(tmp_path: Path, content: bytes | None, says: str) -> None:
    (tmp_path / "in").mkdir()
    if content is not None:
        (tmp_path / "in" / "file").write_bytes(content)
    lines = lines_of(tmp_path / "in")
    summary = mapreduce.sort.run(
        tmp_path / "in", tmp_path / "out", partition_bytes="1K", reducers=2, workers=1
    )
    assert output_of(tmp_path / "out") == sorted_reference(lines), says
    assert summary.input_lines == len(lines)
    assert len(parts_of(tmp_path / "out")) == 2
    mapreduce.wordcount.run(tmp_path / "in", tmp_path / "words", partition_bytes="1K", workers=1)
    assert counted(output_of(tmp_path / "words")) == count_reference(lines)


# --- the output folder ---


def test_an_output_that_exists_is_refused_and_overwritten_when_told(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    some_text(source)
    out.mkdir()  # an empty folder is no output
    mapreduce.sort.run(source, out, workers=1, reducers=4)
    before = parts_of(out)
    with pytest.raises(weft.InvalidArgument, match="exists: choose another folder, or pass"):
        mapreduce.sort.run(source, out, workers=1)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x").write_bytes(b"!raise\n")
    with pytest.raises(weft.TaskFailed):  # a failed run keeps the older output
        lengths.job.run(tmp_path / "bad", out, workers=1, overwrite=True)
    assert parts_of(out) == before
    (source / "text-0").unlink()
    mapreduce.sort.run(source, out, workers=1, reducers=1, overwrite=True)
    assert output_of(out) == sorted_reference(lines_of(source))
    assert len(parts_of(out)) == 1


@pytest.mark.parametrize("ends", ["before the folder is made", "before the lock"])
def test_a_run_that_ends_meanwhile_keeps_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The names were checked while the other run was at work."""
    output = tmp_path / "out"
    other = OutputFolder(str(output), False)
    other.__enter__()

    module = "weft.tasks.mapreduce.output_folder"
    call = "os.makedirs" if ends == "before the folder is made" else "fcntl.flock"
    real: Any = {"os.makedirs": os.makedirs, "fcntl.flock": fcntl.flock}[call]

    def after_the_end(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        other.commit([])
        other.__exit__()
        return real(*args, **more)

    monkeypatch.setattr(f"{module}.{call}", after_the_end)
    with pytest.raises(UsageError, match="another run writes to"):
        OutputFolder(str(output), False).__enter__()
    assert os.listdir(output) == ["_SUCCESS"]
    with pytest.raises(InvalidArgument, match="exists: choose another folder"):
        OutputFolder(str(output), False).__enter__()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_refused(tmp_path: Path, overwrite: bool) -> None:
    some_text(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(weft.InvalidArgument, match=r"holds notes\.txt, which no run has written"):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "out", workers=1, overwrite=overwrite)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_output_and_input_are_apart(tmp_path: Path) -> None:
    some_text(tmp_path / "in")
    for source, out in (("in", "in/out"), ("in", "in"), ("in/text-0", "in")):
        with pytest.raises(weft.InvalidArgument, match="must be apart"):
            mapreduce.sort.run(tmp_path / source, tmp_path / out, workers=1)
    (tmp_path / "file").touch()
    with pytest.raises(weft.InvalidArgument, match="is a file: name a folder"):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "file", workers=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partition_bytes": 0}, "partition_bytes must be"),
        ({"partition_bytes": "1X"}, "partition_bytes must be a size"),
        ({"partition_bytes": "10G"}, "partition_bytes must be"),
        ({"reducers": 0}, "reducers must be"),
        ({"workers": -1}, "workers must be"),
        ({"workers": 2, "engine": "spark"}, "workers is for the engine weft"),
        ({"master": "local[2]"}, "master and spark are for the engine spark"),
        ({"engine": "hadoop"}, "engine must be one of weft, spark"),
        ({"spill": "/dev/null/x"}, "the spill folder /dev/null/x.* cannot be made"),
    ],
)
def test_bad_options_change_nothing(tmp_path: Path, options: Any, says: str) -> None:
    some_text(tmp_path / "in")
    with pytest.raises(weft.InvalidArgument, match=says):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# --- mistakes in functions ---


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("!raise", "ValueError: a mistake"),
        ("!list", "a key of a map function is bytes, str or int, not list"),
        ("!mixed", "the keys of a job have one type, not several: int, str"),
    ],
)
def test_mistakes_of_functions(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "in").write_text(f"one\n{line}\nthree\n")
    with pytest.raises(weft.TaskFailed, match=says):
        lengths.job.run(tmp_path / "in", tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


def test_a_job_checks_its_functions_and_its_place() -> None:
    app = weft.tasks.App("other")
    with pytest.raises(weft.InvalidArgument, match="reduce"):
        mapreduce.MapReduce(app, "x", map=lengths.lengths, reduce=None)  # type: ignore[arg-type]
    mapreduce.MapReduce(app, "x", map=lengths.lengths, reduce=lengths.joined)
    with pytest.raises(weft.InvalidArgument, match=r"task 'x\.map' already"):
        mapreduce.MapReduce(app, "x", map=lengths.lengths, reduce=lengths.joined)


def test_an_app_that_workers_cannot_import_is_refused(tmp_path: Path, node: Cluster) -> None:
    some_text(tmp_path / "in")
    app = weft.tasks.App("hidden", node.servers)
    job = mapreduce.MapReduce(app, "x", map=lengths.lengths, reduce=lengths.joined)
    with pytest.raises(weft.UsageError, match="must be a name at the level of the module"):
        job.run(tmp_path / "in", tmp_path / "out", workers=1)
    app.close()


def test_without_workers_the_run_ends_with_advice(tmp_path: Path) -> None:
    some_text(tmp_path / "in")
    with pytest.raises(weft.JobFailed, match="no worker of the app lengths runs: start one with"):
        lengths.job.run(tmp_path / "in", tmp_path / "out", workers=0)
    assert not (tmp_path / "out").exists()


# --- the command ---


def test_the_command(tmp_path: Path, node: Cluster) -> None:
    servers = node.servers[0]
    made = command("generate", "records", f"{tmp_path}/in", "--bytes", "200K", "--json")
    assert made.exit_code == 0
    check = json.loads(made.stdout)
    words = ["sort", f"{tmp_path}/in", f"{tmp_path}/out", "--partition-bytes", "50K", "-c", "1"]
    ran = command(*words, "--json", servers=servers)
    assert ran.exit_code == 0, ran.output
    summary = json.loads(ran.stdout)
    assert summary["partitions"] == 4
    assert summary["output_lines"] == check["lines"]
    valid = command("validate", f"{tmp_path}/out", "--against", f"{tmp_path}/in")
    assert valid.exit_code == 0
    assert "sorted    yes\ncomplete  yes" in valid.stdout
    again = command(*words, servers=servers)
    assert again.exit_code == 2
    assert "exists: choose another folder, or pass overwrite" in again.stderr
    assert command(*words, "--overwrite", servers=servers).exit_code == 0
    wrong = command("validate", f"{tmp_path}/in", "--json")
    assert (wrong.exit_code, json.loads(wrong.stdout)["sorted"]) == (1, False)
    found = command(
        "grep", f"{tmp_path}/in", f"{tmp_path}/hits", "-e", "[", "-c", "1", servers=servers
    )
    assert found.exit_code == 2
    assert "pattern '[' is no regular expression" in found.stderr


def test_the_command_with_a_job_of_a_user(
    tmp_path: Path, node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "firsts.py").write_text(
        "from weft import tasks\nfrom weft.tasks import mapreduce\n"
        "app = tasks.App('firsts')\n"
        "def first(line):\n    yield line[:1], 1\n"
        "def total(key, values):\n    return sum(values)\n"
        "job = mapreduce.MapReduce(app, 'firsts', map=first, reduce=total, combine=total)\n"
    )
    (tmp_path / "in").write_text("a1\nb\na2\n")
    ran = command("firsts:job", "in", "out", "-c", "1", servers=node.servers[0])
    assert ran.exit_code == 0, ran.output
    assert output_of(tmp_path / "out") == b"a\t2\nb\t1\n"
    for name, says in (("firsts:other", "is missing"), ("firsts:app", "is a App"),
                       ("nowhere:job", "cannot be imported")):  # fmt: skip
        refused = command(name, "in", "out2", servers=node.servers[0])
        assert refused.exit_code == 1
        assert says in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["sort", "nowhere", "out"], 2, "the input nowhere does not exist"),
        (["grep", "in", "out"], 2, "Missing option '-e'"),
        (["sort", "in", "out", "--partition-bytes", "none"], 2, "partition_bytes must be a size"),
        (["sort", "in", "out", "--engine", "hadoop"], 2, "'hadoop' is not one of"),
        (["generate", "text", "x", "--bytes", "much"], 2, "size must be a size"),
        (["validate", "nowhere"], 2, "the input nowhere does not exist"),
    ],
)
def test_bad_usage(
    tmp_path: Path, node: Cluster, monkeypatch: pytest.MonkeyPatch,
    words: list[str], code: int, says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("a\n")
    ran = command(*words, servers=node.servers[0])
    assert ran.exit_code == code
    assert says in ran.stderr
    assert os.listdir(tmp_path) == ["in"]


def test_without_a_cluster_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    ran = command("sort", f"{tmp_path}/in", f"{tmp_path}/out", servers="127.0.0.1:1")
    assert ran.exit_code == 1
    assert "weft serve" in ran.stderr
    assert os.listdir(tmp_path) == ["in"]


def test_without_spark_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").write_text("a\n")
    monkeypatch.delitem(sys.modules, "weft.tasks.mapreduce.spark_engine", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "py4j", None)
    monkeypatch.setitem(sys.modules, "py4j.protocol", None)
    ran = command("sort", f"{tmp_path}/in", f"{tmp_path}/out", "--engine", "spark")
    assert ran.exit_code == 2
    assert "pip install 'weft[spark]'" in ran.stderr
    assert os.listdir(tmp_path) == ["in"]
