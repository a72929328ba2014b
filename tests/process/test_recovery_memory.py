"""The memory that LevelDB needs to read its log is freed once a store is open."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.limits import KIB, MIB

LOG_BYTES = 20 * MIB

_FILL = """
import os, random, signal, sys
from weft.persistence import layout
from weft.persistence.leveldb import LevelStore
store = LevelStore(sys.argv[1], create=True)
for number in range(int(sys.argv[2]) // 1000):
    value = random.Random(number).randbytes(1000)
    store.write([(layout.body(number % 256, number + 1), value)], sync=False)
os.kill(os.getpid(), signal.SIGKILL)
"""
_OPEN = """
import sys
from weft.persistence.leveldb import LevelStore
def own():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
before = own()
store = LevelStore(sys.argv[1], create=False)
print(own() - before, sum(1 for _ in store.scan(b"", bytes([255]))))
store.close()
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps what it likes"
)
def test_a_killed_store_opens_without_keeping_the_memory_of_its_log(tmp_path: Path) -> None:
    def ran(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "store"), str(LOG_BYTES)],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    assert ran(_FILL).returncode == -signal.SIGKILL
    (log,) = (tmp_path / "store").glob("*.log")
    assert log.stat().st_size > LOG_BYTES
    opened = ran(_OPEN)
    assert opened.returncode == 0, opened.stderr
    grown_kib, rows = map(int, opened.stdout.split())
    assert rows == LOG_BYTES // 1000
    assert grown_kib * KIB < LOG_BYTES // 2
