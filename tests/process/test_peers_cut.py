"""Peer edges over a network that is cut: connections are restored soon after the cut."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.process.netns import Network, why_not
from weft.persistence.node_keys import make_keys

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_not()), reason=why_not())]

HOSTS = ("a", "b", "c")
#: After a cut of any length: a heartbeat detects a dead connection, which is retried often.
BACK_S_MAX = 20.0


class Peers:
    """One peer program on each host, and when each last received from each other."""

    def __init__(self, network: Network) -> None:
        keys = {host: make_keys() for host in HOSTS}
        where = {host: f"{network.address(host)}:7703" for host in HOSTS}
        self.heard: dict[tuple[str, str], float] = {}
        self._processes = []
        for host in HOSTS:
            others = {name: [where[name], keys[name].public] for name in HOSTS if name != host}
            process = subprocess.Popen(
                [
                    *network.within(host),
                    *(sys.executable, "-m", "tests.process.peer_program"),
                    *(host, where[host], json.dumps(keys[host]), json.dumps(others)),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            self._processes.append(process)
            threading.Thread(target=self._read, args=(host, process), daemon=True).start()

    def _read(self, host: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            self.heard[said["heard"], host] = said["at"]

    def hears(self, sender: str, to: str, seconds: float) -> float:
        """How long it takes from now on until `to` receives from `sender`."""
        began = time.monotonic()
        while self.heard.get((sender, to), 0) <= began:
            assert time.monotonic() - began < seconds, f"{to} does not hear {sender}"
            time.sleep(0.02)
        return time.monotonic() - began

    def silent(self, sender: str, to: str, seconds: float) -> None:
        """Nothing arrives for this long, after messages in flight have arrived."""
        end = time.monotonic() + 100
        while time.monotonic() - self.heard[sender, to] < seconds:
            assert time.monotonic() < end, f"{to} hears {sender}"
            time.sleep(0.05)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(*HOSTS) as network:
        yield network


@pytest.fixture
def peers(network: Network) -> Iterator[Peers]:
    peers = Peers(network)
    try:
        for sender in HOSTS:
            for to in HOSTS:
                if sender != to:
                    peers.hears(sender, to, 100)
        yield peers
    finally:
        peers.close()


@pytest.mark.parametrize("seconds", [1.0, 8.0])
def test_after_a_cut_they_hear_each_other_again(
    network: Network, peers: Peers, seconds: float
) -> None:
    network.cut("a", "b")
    peers.silent("a", "b", seconds)
    peers.silent("b", "a", 1)
    peers.hears("a", "c", 20)
    network.heal()
    assert peers.hears("a", "b", BACK_S_MAX) < BACK_S_MAX
    assert peers.hears("b", "a", BACK_S_MAX) < BACK_S_MAX


def test_a_host_that_was_unplugged_is_heard_again(network: Network, peers: Peers) -> None:
    network.unplug("c")
    peers.silent("c", "a", 6)
    peers.hears("a", "b", 20)
    network.heal()
    for sender, to in (("c", "a"), ("a", "c"), ("c", "b"), ("b", "c")):
        peers.hears(sender, to, BACK_S_MAX)
