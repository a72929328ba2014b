"""Runs a command that must not outlive its starter: ``python process_guard.py COMMAND...``.

The guard ends with the command's exit code. When its standard input ends, because the starter has
closed the pipe or has died, the guard kills the command with all its descendants, whatever sessions
they are in (Linux), and ends. A script of the standard library alone, so that it starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
_KILL_ROUNDS: Final = 50


def main(command: list[str]) -> int:
    if sys.platform == "linux":
        # Orphans of the command become children of the guard, which can kill them.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        kill(child.pid)

    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    kill(0)  # what the command has left behind
    return code if code >= 0 else 128 - code


def kill(command: int) -> None:
    for _ in range(_KILL_ROUNDS):
        found = [*([command] if command else []), *descendants(os.getpid())]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        command = 0
        try:  # reaps orphans; the command itself is reaped by its `wait`
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def descendants(parent: int) -> list[int]:
    found: list[int] = []
    for task in _listed(f"/proc/{parent}/task"):
        try:
            with open(f"/proc/{parent}/task/{task}/children") as children:
                pids = [int(each) for each in children.read().split()]
        except OSError:
            continue
        for pid in pids:
            found += [pid, *descendants(pid)]
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
