"""Tasks near data: the sites of their runs, moves, theft, and blocks that are read from afar."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.tasks import near
from weft import tasks
from weft.tasks.blocks.app_blocks import JOB
from weft.tasks.heartbeat import WorkerBeat, beats_of
from weft.tasks.sites.site_table import sites_of
from weft.tasks.testing import WorkerProcess, worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
SIZE = 4096


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    near.app.connect(node.servers)
    yield
    near.app.close()


@contextmanager
def site(node: Cluster, name: str, folder: Path, app: str = "near") -> Iterator[WorkerProcess]:
    """A worker at a site with a spill folder of its own."""
    words = ("--site", name, "--spill", str(folder / name))
    with worker_process(f"tests.tasks.{app}:app", node.servers, *words, folder=ROOT) as worker:
        worker.logged("takes")
        wait_for(lambda: any(b.site == name and b.blocks for b in workers()))
        yield worker
        worker.stop()


@pytest.fixture
def two_sites(node: Cluster, tmp_path: Path) -> Iterator[dict[str, WorkerProcess]]:
    with ExitStack() as ends:
        yield {name: ends.enter_context(site(node, name, tmp_path)) for name in ("a", "b")}


@pytest.fixture
def strict_sites(node: Cluster, tmp_path: Path) -> Iterator[None]:
    """Two sites that take no task from each other, however slow one of them is."""
    with site(node, "a", tmp_path, "strict_sites"), site(node, "b", tmp_path, "strict_sites"):
        yield


def workers() -> list[WorkerBeat]:
    return beats_of(near.app.client, "near")


def wait_for(holds: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def made_near(numbers: Iterable[int], at: str) -> list[tasks.Block]:
    futures = [near.make.with_options(near=at).submit(n, SIZE) for n in numbers]
    return tasks.gather(futures, timeout=TIMEOUT_S)


def made(count: int, at: str) -> list[tasks.Block]:
    """Blocks at a site. An idle site may steal the task of one: its block is then made again."""
    found: dict[int, tasks.Block] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline
        missing = [n for n in range(count) if n not in found]
        blocks = made_near(missing, at)
        found.update((n, each) for n, each in zip(missing, blocks, strict=True) if each.site == at)
    return [found[n] for n in range(count)]


def test_tasks_run_at_the_site_of_their_data(strict_sites: None) -> None:
    blocks = made_near(range(20), "a") + made_near(range(20), "b")
    assert [block.site for block in blocks] == ["a"] * 20 + ["b"] * 20
    mixed = blocks[::2] + blocks[1::2]
    found = tasks.gather(near.measure.map(mixed), timeout=TIMEOUT_S)
    assert found == [[block.site, SIZE] for block in mixed]
    names = tasks.gather([near.visit.submit(each) for each in "abab"], timeout=TIMEOUT_S)
    assert names == [*"abab"]
    assert near.visit.submit("").result(timeout=TIMEOUT_S) in ("a", "b")


def test_a_full_site_gives_work_away_and_its_blocks_are_fetched(two_sites: object) -> None:
    blocks = made(10, "a")
    rounds: list[Counter[str | int]] = []
    # Of 40 tasks each site runs about 20, unless one of them is paused meanwhile.
    while not rounds or min(rounds[-1]["a"], rounds[-1]["b"]) < 10:
        assert len(rounds) < 5, rounds
        futures = [near.measure.submit(block, seconds=0.1) for block in blocks * 4]
        found = tasks.gather(futures, timeout=TIMEOUT_S)
        rounds.append(Counter(name for name, _ in found))
        assert {size for _, size in found} == {SIZE}
    # b has fetched blocks of a, or it would have been idle.

    def counted() -> bool:
        load = sites_of(workers(), []).get("b")
        return load is not None and load.placed.fetched + load.placed.stolen >= 10

    wait_for(counted)


def test_tasks_of_a_dead_site_run_elsewhere_and_lost_blocks_are_made_again(
    node: Cluster, tmp_path: Path
) -> None:
    with site(node, "b", tmp_path), site(node, "a", tmp_path) as dead:
        blocks = made(6, "a")
        both = near.join.submit(blocks).result(timeout=TIMEOUT_S)
        at_a = [block for block in [*blocks, both] if block.site == "a"]
        assert at_a
        dead.kill_all()
        found = [near.measure.submit(block) for block in at_a]
        for (name, size), block in zip(tasks.gather(found, timeout=TIMEOUT_S), at_a, strict=True):
            assert (name, size) == ("b", block.size)
        assert near.app.read_block(blocks[0]) == near.content(0, SIZE)  # b has it now


def test_a_block_with_another_content_at_its_second_run_is_lost(
    node: Cluster, tmp_path: Path
) -> None:
    with site(node, "a", tmp_path):
        block = near.remember.submit(str(tmp_path)).result(timeout=TIMEOUT_S)
        (tmp_path / "a" / "near" / JOB / block.name).unlink()
        with pytest.raises(weft.BlockLost, match="which is no coroutine"):
            near.app.read_block(block)  # this process is no worker
        failed = near.measure.submit(block)
        with pytest.raises(weft.TaskFailed, match="must be deterministic"):
            failed.result(timeout=TIMEOUT_S)


def test_a_block_ends_after_its_time(node: Cluster, tmp_path: Path) -> None:
    with site(node, "a", tmp_path):
        block = near.make.submit(1, SIZE, ttl=1.0).result(timeout=TIMEOUT_S)
        path = tmp_path / "a" / "near" / JOB / block.name
        os.utime(path, (0, 0))
        from weft.tasks.blocks.block_store import BlockStore

        assert BlockStore(str(tmp_path / "a")).sweep() == 1
        assert not path.exists()


def test_a_task_in_the_queue_of_a_site_is_cancelled(node: Cluster, tmp_path: Path) -> None:
    with site(node, "b", tmp_path), site(node, "a", tmp_path):
        over = tmp_path / "over"
        *futures, last = [near.visit.submit("a", until=str(over)) for _ in range(10)]
        last.cancel()
        with pytest.raises(weft.TaskCancelled):
            last.result(timeout=TIMEOUT_S)
        over.touch()
        assert set(tasks.gather(futures, timeout=TIMEOUT_S)) <= {"a", "b"}


def test_bad_places_are_refused(node: Cluster) -> None:
    with pytest.raises(weft.InvalidArgument, match="a site has"):
        near.make.with_options(near="../b")
    with pytest.raises(weft.InvalidArgument, match="near must be"):
        near.make.with_options(near=7)  # type: ignore[arg-type]
    with pytest.raises(weft.InvalidArgument, match="near must be True"):
        near.app.task(near="nothing", name="none")(lambda block: None)
    plain = tasks.App("plain").task(name="plain")(lambda n: n)
    with pytest.raises(weft.InvalidArgument, match="near=True"):
        plain.with_options(near="a")


def test_blocks_inline() -> None:
    with near.app.inline():
        block = near.make.submit(3, 16).result()
        assert near.measure.submit(block).result() == ["", 16]


def test_the_guide_runs_as_printed(node: Cluster, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tasks" / "locality.md").read_text(encoding="utf-8")
    (tmp_path / "words.py").write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])
    words = ("--site", "second", "--spill", str(tmp_path / "second"))
    assert "weft worker words:app --site second --spill" in text
    with worker_process("words:app", node.servers, *words, folder=tmp_path) as worker:
        worker.logged("takes")
        ran = subprocess.run(
            [sys.executable, "words.py"], cwd=tmp_path, capture_output=True, text=True,
            timeout=TIMEOUT_S, env={**os.environ, "WEFT_SERVERS": ",".join(node.servers)},
        )  # fmt: skip
    assert ran.stdout == "[6, 12, 18]\n", ran.stderr
