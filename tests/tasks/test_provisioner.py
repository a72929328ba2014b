"""`weft provision` on a real node: slots follow the load, one acts, hooks that fail are retried."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.tasks import shop
from weft.tasks.provisioner.provisioner import Provisioner, ProvisionReport
from weft.tasks.provisioner.provisioner_lease import ProvisionerLease
from weft.tasks.provisioner.slot_policy import SlotPolicy
from weft.tasks.provisioner.worker_source import CommandSource, HookFailed
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
NO_WORKERS: list[Any] = []


@pytest.fixture(autouse=True)
def connected(node: Cluster) -> Iterator[None]:
    shop.app.connect(node.servers)
    yield
    shop.app.close()


class Provision:
    """`weft provision --json` in a process; the reports as they come."""

    def __init__(self, node: Cluster, *words: str) -> None:
        servers = ",".join(node.servers)
        command = [sys.executable, "-m", "weft.client.cli.main", "provision", *words]
        self.process = subprocess.Popen(
            [*command, "--json", "--servers", servers],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.reports: list[ProvisionReport] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.reports.append(ProvisionReport(**json.loads(line)))

    def until(self, holds: Any) -> ProvisionReport:
        """Waits for a report; returns the first one that holds."""
        deadline, seen = time.monotonic() + TIMEOUT_S, 0
        while True:
            for report in self.reports[seen:]:
                seen += 1
                if holds(report):
                    return report
            assert time.monotonic() < deadline, self.reports[-10:]
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def provision(node: Cluster, *words: str) -> Iterator[Provision]:
    made = Provision(node, *words)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.stop()


def test_slots_follow_a_load_that_rises_and_falls(node: Cluster, tmp_path: Path) -> None:
    """Within two intervals of the first look at the new load, up and down; with a picture."""
    picture = tmp_path / "slots.png"
    words = (
        "shop", "--worker", "tests.tasks.shop:app", "-q", "default", "--max", "4",
        "--interval", "1.5", "--growth", "5", "--step", "4", "--drain", "3", "--plot", str(picture),
    )  # fmt: skip
    with provision(node, *words) as made:
        made.until(lambda report: report.leader)
        assert made.reports[-1].slots == 0, "no load, no slots"
        # 12 tasks of 0.25 s each second need three slots and more.
        futures = []
        for _ in range(8):
            futures += shop.nap.map([0.25] * 8)
            time.sleep(0.7)
        weft.tasks.gather(futures, timeout=TIMEOUT_S)
        ended = time.time()
        made.until(lambda report: report.time > ended and not report.slots)
        assert made.stop() == 0
    reports = made.reports
    rise = next(n for n, each in enumerate(reports) if each.ready)
    assert max(each.slots for each in reports[rise : rise + 3]) == 4, reports
    fall = next(
        n for n, each in enumerate(reports)
        if n > rise and not each.ready and not each.running
        and not any(later.ready for later in reports[n:])
    )  # fmt: skip
    assert min(each.slots for each in reports[fall : fall + 3]) == 0, reports[fall:]
    assert [each.error for each in reports if each.error] == []
    assert picture.read_bytes()[:4] == b"\x89PNG"
    if kept := os.environ.get("WEFT_PROVISION_PLOT"):
        Path(kept).write_bytes(picture.read_bytes())


def made_with(node: Cluster, source: Any, **options: Any) -> tuple[Provisioner, weft.Client]:
    client = weft.connect(node.servers)
    policy = SlotPolicy(2, 8, options.pop("interval_s", 1.0), drain_s=10, cooldown_s=0)
    return Provisioner(client, "shop", [], policy, source, **options), client


class Counted:
    """A source that only counts."""

    can_stop = True

    def __init__(self) -> None:
        self.workers = 0

    def count(self, beats: Any) -> int:
        return self.workers

    def start(self, workers: int) -> None:
        self.workers += workers

    def stop(self, workers: int, idle: Any) -> None:
        self.workers -= workers

    def close(self) -> None:
        """Nothing runs."""


def test_of_two_provisioners_one_acts_and_the_other_takes_over(node: Cluster) -> None:
    sources = [Counted(), Counted()]
    first, one = made_with(node, sources[0])
    second, two = made_with(node, sources[1])
    assert first.step().leader
    assert not second.step().leader
    assert [each.workers for each in sources] == [2, 0]
    assert first.step().leader, "the holder renews"
    first.stop()
    first.run()  # releases the lease
    assert second.step().leader
    assert sources[1].workers == 2
    assert not first.step().leader
    one.close()
    two.close()


def test_a_lease_ends_before_its_row(node: Cluster) -> None:
    with weft.connect(node.servers) as client:
        dead = ProvisionerLease(client, "shop", "crashed", 1.0)
        assert dead.renew()
        heir = ProvisionerLease(client, "shop", "crashed", 1.0)
        deadline = time.monotonic() + TIMEOUT_S
        while not heir.renew():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert not dead.held, "never two at once"
        assert not dead.renew()


def test_a_failing_hook_is_reported_and_retried_with_pauses(node: Cluster, tmp_path: Path) -> None:
    tries, works = tmp_path / "tries", tmp_path / "works"
    hook = f"echo try >> {tries}; test -e {works} || {{ echo no quota >&2; exit 7; }}"
    source = CommandSource("shop", hook, None, None, 30, 120)
    made, client = made_with(node, source, name="failing", interval_s=0.2)
    report = made.step()
    assert report.error.startswith("--start ended with exit code 7: no quota; hooks pause for 0.2")
    assert (report.hook_failures, report.started) == (1, 0)
    reports: list[ProvisionReport] = []
    deadline = time.monotonic() + TIMEOUT_S
    while made.hook_failures < 4:
        reports.append(made.step())
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pauses = [each.error.rpartition("for ")[2] for each in reports if each.error]
    assert pauses == ["0.4 s", "0.8 s", "1.6 s"]
    assert len(tries.read_text().splitlines()) == 4, "no hook runs in a pause"
    works.touch()
    while not (report := made.step()).started:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (report.started, report.wanted) == (2, 2)
    assert made.step().workers == 2, "started workers count before their first heartbeat"
    client.close()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("echo many", "must print a number of workers, and printed 'many'"),
        ("true", "printed ''"),
        ("echo broken >&2; exit 1", "--count ended with exit code 1: broken"),
        ("sleep 60", "--count has not ended within 0.2 s"),
    ],
)
def test_a_count_that_is_none(command: str, says: str) -> None:
    with pytest.raises(HookFailed, match=says):
        CommandSource("shop", "true", None, command, 0.2, 120).count(NO_WORKERS)


def test_hooks_get_their_number(tmp_path: Path) -> None:
    said = tmp_path / "said"
    source = CommandSource(
        "shop", f"echo start $WEFT_WORKERS $WEFT_APP >> {said}",
        f"echo stop $WEFT_WORKERS >> {said}", "echo 5", 30, 120,
    )  # fmt: skip
    source.start(3)
    source.stop(2, ())
    assert said.read_text().splitlines() == ["start 3 shop", "stop 2"]
    assert source.count(NO_WORKERS) == 5


def test_a_hook_may_leave_workers_in_the_background(tmp_path: Path) -> None:
    """They hold the hook's output open, which must not count as a hook that has not ended."""
    said = tmp_path / "pid"
    CommandSource("shop", f"sleep 600 & echo $! > {said}", None, None, 20, 120).start(1)
    os.kill(int(said.read_text()), signal.SIGTERM)


def test_a_worker_that_cannot_start_is_no_crash_loop(node: Cluster) -> None:
    words = (
        "shop", "--worker", "tests.tasks.broken:app", "--min", "1", "--max", "1",
        "--interval", "0.5", "--drain", "1", "--name", "broken",
    )  # fmt: skip
    with provision(node, *words) as made:
        made.until(lambda report: report.hook_failures == 2)
        assert made.process.poll() is None
        assert made.stop() == 0
    errors = [each.error for each in made.reports if each.error]
    assert "a worker ended with exit code 1 right after its start" in errors[0]
    started = [n for n, each in enumerate(made.reports) if each.started]
    assert len(started) <= 3


def test_a_cluster_that_is_away_is_reported(node: Cluster) -> None:
    source = Counted()
    client = weft.connect(node.servers, timeout_ms=500)
    made = Provisioner(client, "shop", [], SlotPolicy(1, 1, 1.0, drain_s=5), source, name="away")
    assert made.step().leader
    node.kill()
    report = made.step()
    assert "the cluster was not asked" in report.error
    assert source.workers == 1, "nothing is started or stopped blindly"
    node.start()
    deadline = time.monotonic() + TIMEOUT_S
    while made.step().error:
        assert time.monotonic() < deadline
    client.close()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "either --worker MODULE:APP or --start COMMAND"),
        (("--worker", "a:b", "--start", "true"), "either --worker MODULE:APP or --start COMMAND"),
        (("--worker", "a:b", "--stop", "true"), "--stop and --count go with --start"),
        (("--worker", "a b"), "an app is named MODULE:APP"),
        (("--worker", "a:b", "--min", "3", "--max", "2"), "min must not be above max"),
        (("--worker", "a:b", "--interval", "0"), "interval must be"),
        (("--worker", "a:b", "--metrics", "nowhere"), "served at HOST:PORT or PORT"),
        (("--worker", "a:b", "-q", "a b"), "queue"),
    ],
)
def test_wrong_options_are_refused(node: Cluster, words: tuple[str, ...], says: str) -> None:
    from click.testing import CliRunner

    from weft.client.cli.main import cli

    servers = ",".join(node.servers)
    result = CliRunner().invoke(cli, ["provision", "shop", *words, "--servers", servers])
    assert result.exit_code in (1, 2)
    assert says in result.output
