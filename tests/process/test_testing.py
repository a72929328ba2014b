"""`weft.testing`: real nodes that start, stop, and are never left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft
from weft.errors import Unavailable, UsageError
from weft.testing import Cluster, cluster, weft_cluster

pytestmark = pytest.mark.process
__all__ = ["weft_cluster"]


def becomes(pid: int, states: str, seconds: float = 100) -> bool:
    """True if a process reaches one of these states of proc(5); a missing process counts as Z."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            state = "Z"
        if state in states:
            return True
        time.sleep(0.01)
    return False


def ended(pid: int) -> bool:
    """True if the process is gone, or is a zombie."""
    return becomes(pid, "Z")


def test_the_fixture_gives_a_node_that_works(weft_cluster: Cluster) -> None:
    client = weft_cluster.client()
    client.create_queue("q")
    client.queue("q").push(b"one")
    message = client.queue("q").pop(wait_ms=60_000)
    assert message is not None
    assert message.body == b"one"


def test_a_node_comes_back_on_its_ports(tmp_path: Path) -> None:
    with cluster(data=tmp_path) as made:
        servers, first = made.servers, made.node(0).pid
        assert made.stop(0) == 0
        assert not made.node(0).running
        made.start(0)
        made.kill(0)
        assert ended(first)
        made.start(0)
        assert made.servers == servers
        assert made.node(0).data == tmp_path / "node-0"
        with weft.connect(servers) as client:
            assert client.list_queues() == []
        last = made.node(0).pid
    assert ended(last)
    assert (tmp_path / "node-0").is_dir()
    with cluster(data=tmp_path) as made:
        assert made.servers == servers


def test_temporary_data_is_removed() -> None:
    with cluster() as made:
        folder = made.node(0).data.parent
        assert folder.is_dir()
    assert not folder.exists()


def test_a_paused_node_says_nothing_until_it_is_resumed() -> None:
    with cluster() as made:
        pid = made.node(0).pid
        made.pause(0)
        assert becomes(pid, "T")
        made.resume(0)
        assert becomes(pid, "SR")
        assert made.stop(0) == 0


def test_a_paused_node_can_be_stopped() -> None:
    with cluster() as made:
        made.pause(0)
        assert made.stop(0) == 0


@pytest.mark.parametrize("paused", [False, True])
def test_nodes_end_with_a_killed_test_run(paused: bool) -> None:
    script = (
        "import sys, time, weft.testing\n"
        "with weft.testing.cluster() as made:\n"
        f"    {'made.pause(0)' if paused else 'pass'}\n"
        "    print(made.node(0).pid, made.node(0).data.parent, flush=True)\n"
        "    time.sleep(600)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    with run.stdout:
        pid, folder = run.stdout.readline().split()
    run.kill()
    run.wait()
    assert ended(int(pid))
    subprocess.run(["rm", "-r", folder], check=True)


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    (tmp_path / "node-0").write_text("not a directory")
    with (
        pytest.raises(Unavailable, match="cannot be used as a data directory"),
        cluster(data=tmp_path),
    ):
        pytest.fail("it started")


def test_settings_are_those_of_serve(tmp_path: Path) -> None:
    with cluster(data=tmp_path, durability="os", log_level="debug", insecure=True) as made:
        made.stop(0)
        said = made.node(0).log.read_text()
    assert "durability=os" in said
    assert "insecure: any client that reaches these ports" in said
    with pytest.raises(Unavailable, match=r"No such option.*--nonsense"), cluster(nonsense=1):
        pytest.fail("it started")


def test_the_environment_does_not_leak_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_LOG_LEVEL", "nonsense")
    with cluster() as made:
        assert made.node(0).running


def test_misuse_is_said() -> None:
    with pytest.raises(UsageError, match="nodes must be 1 to 32"), cluster(0):
        pytest.fail("it started")
    with pytest.raises(UsageError, match="listen: the cluster chooses"), cluster(listen="x"):
        pytest.fail("it started")
    with cluster() as made:
        with pytest.raises(UsageError, match="runs already"):
            made.start(0)
        made.kill(0)
        with pytest.raises(UsageError, match="not running"):
            made.stop(0)
