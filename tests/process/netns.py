"""A network that can be cut: hosts are network namespaces, on one bridge in another namespace.

Nothing of it is in the machine's own network, so nothing there can be harmed, and everything is
gone with the namespaces. Their names have the pid of the test run: the next run removes leftovers
of a killed run. Root and the `ip` command are required: `why_not` says which is missing.

A cut is silent, as a real one is: no host gets an error, packets are just not delivered. A cut is
made with a false permanent neighbour: packets from `a` to `b` go to a MAC address that no host has.
So a cut can be one-way. (A blackhole route would answer every send with an error at once.) An
unplugged host has no carrier.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_NOBODY: Final = "02:00:00:00:00:00"
_NETWORK: Final = "10.99.0."
_OWNED: Final = re.compile(r"weft-(\d+)-[0-9a-f]{4}-")
_CLONE_NEWNET: Final = 0x40000000
_NAMESPACES: Final = "/var/run/netns"


def why_not() -> str:
    """Why there can be no such network here; "" when there can."""
    if shutil.which("ip") is None:
        return "there is no `ip` command (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"weft-try-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.strip()}"
    _ip("netns", "delete", name)
    return ""


def sweep() -> None:
    """Remove the leftovers of runs that have ended."""
    for name in namespaces():
        owner = _OWNED.match(name)
        if owner and not Path(f"/proc/{owner.group(1)}").exists():
            # Another run may be sweeping too.
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def namespaces() -> list[str]:
    """All namespaces; not listed by `ip`, which fails when a namespace vanishes meanwhile."""
    return sorted(os.listdir(_NAMESPACES)) if os.path.isdir(_NAMESPACES) else []


class Network:
    """Hosts by name, all connected. Use it in a ``with``."""

    def __init__(self, *hosts: str) -> None:
        assert len(set(hosts)) == len(hosts) < 200, "hosts have different names"
        self._hosts = hosts
        self._prefix = f"weft-{os.getpid()}-{secrets.token_hex(2)}"
        self._hub = f"{self._prefix}-hub"
        self._cuts: set[tuple[str, str]] = set()
        self._unplugged: set[str] = set()

    def __enter__(self) -> Self:
        sweep()
        try:
            _ip("netns", "add", self._hub)
            _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._hub, "link", "set", "bridge", "up")
            for host in self._hosts:
                self._add(host)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete the namespaces.

        A process that still runs in a host keeps its namespace: end it first.
        """
        for name in namespaces():
            if name.startswith(f"{self._prefix}-"):
                _ip("netns", "delete", name)

    def address(self, host: str) -> str:
        return f"{_NETWORK}{self._hosts.index(host) + 1}"

    # --- doing things in a host -----------------------------------------------------------

    def within(self, host: str) -> list[str]:
        """The command prefix that runs a command in this host, under its own pid."""
        return ["ip", "netns", "exec", self._namespace(host)]

    def run(self, host: str, command: Sequence[str], **options: Any) -> str:
        """A command's output; raises CalledProcessError when it fails."""
        done = subprocess.run(
            [*self.within(host), *command],
            capture_output=True, text=True, check=True, timeout=200, **options,
        )  # fmt: skip
        return str(done.stdout)

    def enter(self, host: str) -> None:
        """Move this thread, and its future children, into this host."""
        libc = ctypes.CDLL(None, use_errno=True)
        handle = os.open(f"{_NAMESPACES}/{self._namespace(host)}", os.O_RDONLY)
        try:
            if libc.setns(handle, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {host}")
        finally:
            os.close(handle)

    # --- cutting --------------------------------------------------------------------------

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop packets from `a` to `b` from now on, and, unless `one_way`, from `b` to `a`."""
        pairs = [(a, b)] if one_way else [(a, b), (b, a)]
        for sender, to in pairs:
            assert sender != to, "nobody is cut off from himself"
            self._neighbour(sender, "replace", to, "lladdr", _NOBODY, "nud", "permanent")
            self._cuts.add((sender, to))

    def split(self, *groups: Sequence[str]) -> None:
        """Hosts of one group reach each other and no host of another group."""
        for number, group in enumerate(groups):
            for other in groups[number + 1 :]:
                for a in group:
                    for b in other:
                        self.cut(a, b)

    def unplug(self, host: str) -> None:
        _ip("-n", self._hub, "link", "set", self._port(host), "down")
        self._unplugged.add(host)

    def heal(self) -> None:
        """Reconnect all hosts."""
        for sender, to in self._cuts:
            self._neighbour(sender, "delete", to)
        self._cuts.clear()
        for host in self._unplugged:
            _ip("-n", self._hub, "link", "set", self._port(host), "up")
        self._unplugged.clear()
        for host in self._hosts:  # else a failed neighbour lookup would persist for a while
            _ip("-n", self._namespace(host), "neighbour", "flush", "dev", "eth0")

    # --- inside ---------------------------------------------------------------------------

    def _add(self, host: str) -> None:
        space, port = self._namespace(host), self._port(host)
        _ip("netns", "add", space)
        _ip(
            *("-n", self._hub, "link", "add", port, "type", "veth"),
            *("peer", "name", "eth0", "netns", space),
        )
        _ip("-n", self._hub, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "set", "eth0", "up")

    def _neighbour(self, host: str, verb: str, other: str, *more: str) -> None:
        space = self._namespace(host)
        _ip("-n", space, "neighbour", verb, self.address(other), "dev", "eth0", *more)

    def _namespace(self, host: str) -> str:
        assert host in self._hosts, f"no host is called {host}"
        return f"{self._prefix}-{host}"

    def _port(self, host: str) -> str:
        return f"port{self._hosts.index(host)}"


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
