"""Map-reduce with workers that share no files with the driver, nor with each other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import weft
from weft.tasks import mapreduce
from weft.tasks.heartbeat import beats_of
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
RUN = (
    "import sys; from weft.tasks.child_process import end_with; end_with(int(sys.argv.pop(1))); "
    "from weft.client.cli.main import main; main()"
)
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="mount namespaces need root"
)
TIMEOUT_S = 60


def worker(node: Cluster, site: str, hidden: Path, spill: Path) -> subprocess.Popen[bytes]:
    """A worker in a mount namespace in which the folder of the test is empty."""
    spill.mkdir(parents=True)
    words = [
        sys.executable, "-c", RUN, str(os.getpid()), "worker", "weft.tasks.mapreduce:app",
        "--site", site, "--spill", str(spill), "--servers", ",".join(node.servers),
    ]  # fmt: skip
    script = f'mount -t tmpfs none "{hidden}" && exec "$@"'
    return subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", *words], cwd=ROOT, start_new_session=True
    )


@pytest.fixture
def spills(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("spills")
    return {site: folder / site for site in ("a", "b")}


@pytest.fixture
def workers(
    node: Cluster, tmp_path: Path, spills: dict[str, Path]
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    mapreduce.app.connect(node.servers)
    with ExitStack() as ends:
        ends.callback(mapreduce.app.close)
        found = {}
        for site, spill in spills.items():
            found[site] = worker(node, site, tmp_path, spill)
            ends.callback(found[site].wait, TIMEOUT_S)
            ends.callback(_end, found[site])
        deadline = time.monotonic() + TIMEOUT_S
        while {beat.site for beat in beats_of(mapreduce.app.client, "mapreduce")} != {"a", "b"}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield found


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_a_sort_without_shared_files(workers: object, tmp_path: Path) -> None:
    mapreduce.generate("records", tmp_path / "in", size="2M", file_bytes="300K")
    summary = mapreduce.sort.run(
        tmp_path / "in", tmp_path / "out", partition_bytes="100K", reducers=3, workers=0,
        transfer=True,
    )  # fmt: skip
    assert summary.partitions >= 20
    found = mapreduce.validate(tmp_path / "out", against=tmp_path / "in")
    assert found.sorted, found
    assert found.complete, found


def test_the_output_is_that_of_a_run_with_shared_files(workers: object, tmp_path: Path) -> None:
    mapreduce.generate("text", tmp_path / "in", size="1M")
    given = {"partition_bytes": "100K", "reducers": 2}
    mapreduce.wordcount.run(tmp_path / "in", tmp_path / "near", workers=1, **given)  # type: ignore[arg-type]
    mapreduce.wordcount.run(tmp_path / "in", tmp_path / "far", workers=0, transfer=True, **given)  # type: ignore[arg-type]
    for part in ("part-00000", "part-00001"):
        near, far = ((tmp_path / each / part).read_bytes() for each in ("near", "far"))
        assert near == far
        assert near


def test_a_lost_worker_loses_blocks_and_the_run_makes_them_again(
    workers: dict[str, subprocess.Popen[bytes]], spills: dict[str, Path], tmp_path: Path
) -> None:
    mapreduce.generate("records", tmp_path / "in", size="4M", file_bytes="200K")
    killed = threading.Event()

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "reduce" and not killed.is_set():
            killed.set()
            # The worker with most outputs: one worker may have run all the maps.
            count = {site: len(list(path.glob("*/*/map-*"))) for site, path in spills.items()}
            _end(workers[max(count, key=lambda site: count[site])])

    summary = mapreduce.sort.run(
        tmp_path / "in", tmp_path / "out", partition_bytes="100K", reducers=3, workers=0,
        transfer=True, progress=kill,
    )  # fmt: skip
    assert killed.is_set()
    assert summary.repaired > 0
    found = mapreduce.validate(tmp_path / "out", against=tmp_path / "in")
    assert found.sorted, found
    assert found.complete, found


def test_spark_has_no_transfer(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    with pytest.raises(weft.InvalidArgument, match="Spark moves the data itself"):
        mapreduce.sort.run(tmp_path / "in", tmp_path / "out", engine="spark", transfer=True)
