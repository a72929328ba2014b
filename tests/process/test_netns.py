"""The network that can be cut, tested with plain sockets before other tests rely on it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.process.netns import Network, namespaces, why_not

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_not()), reason=why_not())]

#: Echoes every line, for any number of clients.
ECHO = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer.daemon_threads = True
server = socketserver.ThreadingTCPServer(("0.0.0.0", 7000), Echo)
print("ready", flush=True)
server.serve_forever()
"""
#: One new connection, one line there and back.
ASK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2])) as line:
        line.sendall(b"hello\\n")
        print("answered" if line.recv(100) == b"hello\\n" else "nonsense")
except OSError as error:
    print(type(error).__name__)
"""
#: A lasting connection: sends each line of input, and prints the result.
HOLD = """
import socket, sys
line = socket.create_connection((sys.argv[1], 7000), timeout=50)
print("connected", flush=True)
for text in sys.stdin:
    line.settimeout(1 if text == "two\\n" else 50)
    try:
        line.sendall(text.encode())
        print("answered" if line.recv(100) else "closed", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


def python(network: Network, host: str, script: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*network.within(host), sys.executable, "-c", script, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


@contextmanager
def ending(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def network() -> Iterator[Network]:
    """Three hosts; a and b echo."""
    with Network("a", "b", "c") as network:
        servers = [python(network, host, ECHO) for host in ("a", "b")]
        with ending(*servers):
            assert [says(server) for server in servers] == ["ready", "ready"]
            yield network


def ask(network: Network, sender: str, to: str, seconds: float = 50) -> str:
    script = [sys.executable, "-c", ASK, network.address(to), str(seconds)]
    return network.run(sender, script).strip()


def test_everybody_reaches_everybody(network: Network) -> None:
    for sender, to in (("a", "b"), ("b", "a"), ("c", "a"), ("c", "b"), ("a", "a")):
        assert ask(network, sender, to) == "answered"


def test_a_cut_is_silent_and_concerns_two(network: Network) -> None:
    network.cut("a", "b")
    assert ask(network, "a", "b", 1) == "TimeoutError"
    assert ask(network, "b", "a", 1) == "TimeoutError"
    assert ask(network, "c", "a") == "answered"
    assert ask(network, "c", "b") == "answered"
    network.heal()
    assert ask(network, "a", "b") == "answered"


def test_a_cut_one_way(network: Network) -> None:
    """A connection needs both directions, so the test uses a datagram."""
    listen = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('0.0.0.0', 7001))\n"
        "print('ready', flush=True)\n"
        "import sys; s.settimeout(float(sys.argv[1]))\n"
        "try: print(s.recv(100).decode())\n"
        "except TimeoutError: print('nothing')"
    )
    say = (
        "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "s.sendto(b'heard', (sys.argv[1], 7001))"
    )

    def heard(sender: str, to: str, seconds: float = 100) -> str:
        listener = python(network, to, listen, str(seconds))
        with ending(listener):
            assert says(listener) == "ready"
            network.run(sender, [sys.executable, "-c", say, network.address(to)])
            return says(listener)

    network.cut("a", "b", one_way=True)
    assert heard("a", "b", 2) == "nothing"
    assert heard("b", "a") == "heard"
    network.heal()
    assert heard("a", "b") == "heard"


@pytest.mark.parametrize("how", ["cut", "unplug"])
def test_an_open_connection_says_nothing_and_comes_back(network: Network, how: str) -> None:
    held = python(network, "c", HOLD, network.address("a"))
    assert held.stdin is not None
    with ending(held):
        assert says(held) == "connected"
        held.stdin.write("one\n")
        assert says(held) == "answered"
        if how == "cut":
            network.cut("c", "a")
        else:
            network.unplug("a")
        held.stdin.write("two\n")
        assert says(held) == "TimeoutError"
        network.heal()
        end = time.monotonic() + 200
        while True:
            held.stdin.write("three\n")
            if says(held) == "answered":
                break
            assert time.monotonic() < end, "TCP did not find its way back"


def test_a_split_keeps_groups_together(network: Network) -> None:
    network.split(["a", "c"], ["b"])
    assert ask(network, "c", "a") == "answered"
    assert ask(network, "c", "b", 1) == "TimeoutError"
    assert ask(network, "a", "b", 1) == "TimeoutError"


def test_an_unplugged_host_reaches_only_itself(network: Network) -> None:
    network.unplug("a")
    assert ask(network, "c", "a", 1) != "answered"
    assert ask(network, "a", "b", 1) != "answered"
    assert ask(network, "c", "b") == "answered"
    network.heal()
    assert ask(network, "c", "a") == "answered"


def test_nothing_is_left_behind() -> None:
    with Network("a", "b") as network:
        prefix = network.within("a")[-1].rpartition("-")[0]
        assert len([name for name in namespaces() if name.startswith(f"{prefix}-")]) == 3
    assert not [name for name in namespaces() if name.startswith(f"{prefix}-")]
    with pytest.raises(AssertionError, match="no host is called z"):
        network.within("z")


def test_what_a_killed_run_left_is_swept_away() -> None:
    script = (
        "import os, signal\nfrom tests.process.netns import Network\n"
        "network = Network('a').__enter__()\nprint(network.within('a')[-1], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    left = killed.stdout.strip()
    assert left
    with Network("b"):
        assert left not in namespaces()
