"""The client under Python versions that a node does not run with.

The wheel is built, installed there, and used against a node of this interpreter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft.testing import cluster

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
import weft
from weft import aio

with weft.connect(sys.argv[1]) as client:
    client.create_queue("orders", max_deliveries=2, dead_letter="orders.dead")
    orders = client.queue("orders")
    orders.push(b"one", headers={"k": "v"}, key="k", dedup_key="1")
    assert len(orders.push_many(b"%d" % n for n in range(1000))) == 1000
    with orders.producer() as producer:
        producer.send_many([b"x"] * 1000)
    message = orders.pop(wait_ms=5000)
    message.extend(60_000)
    message.ack()
    count = 1
    for message in orders.consume(stop_when_empty=True):
        message.ack()
        count += 1
    assert count == 2001, count
    client.kv.insert("k", b"v")
    assert client.kv.lookup("k") == b"v"

async def main():
    async with aio.connect(sys.argv[1]) as client:
        orders = client.queue("orders")
        await orders.push_many([b"a", b"b"])
        batch = await orders.pop_many(10, wait_ms=5000)
        await orders.ack_many(batch)
        assert len(batch) == 2

asyncio.run(main())
print("done", sys.version_info[:2])
"""


def _interpreter(version: str) -> str | None:
    """An interpreter on the search path, or installed by pyenv; None if it does not run."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python"))]
    for each in filter(None, found):
        asked = subprocess.run([each, "-c", "import venv, ensurepip"], capture_output=True)
        if asked.returncode == 0:
            return each
    return None


def _run(*words: str, **more: object) -> subprocess.CompletedProcess[str]:
    # Without PYTHONPATH, which other tests set to the source folder: it would be imported instead.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        words, capture_output=True, text=True, timeout=600, env=environment, **more
    )


@pytest.mark.parametrize("version", ["3.13", "3.14"])
def test_the_client_under_a_newer_python(version: str, tmp_path: Path) -> None:
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"there is no Python {version} here")
    wheels = tmp_path / "wheels"
    pip = ("-m", "pip", "--disable-pip-version-check", "-q")
    built = _run(sys.executable, *pip, "wheel", "--no-deps", "-w", str(wheels), str(ROOT))
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob("weft-*.whl")
    assert _run(interpreter, "-m", "venv", str(tmp_path / "venv")).returncode == 0
    python = str(tmp_path / "venv" / "bin" / "python")
    # Not in the source folder: pip would take the project's own egg-info there for an installation.
    install = (*pip, "install", "--only-binary", ":all:", str(wheel))
    installed = _run(python, *install, cwd=tmp_path)
    if installed.returncode != 0:
        online = _run(python, *pip, "download", "--no-deps", "-d", str(tmp_path), "click")
        assert online.returncode != 0, installed.stderr
        pytest.skip(f"no package index for Python {version}: {installed.stderr[-200:]}")
    with cluster() as node:
        server = node.servers if isinstance(node.servers, str) else node.servers[0]
        ran = _run(python, "-c", PROGRAM, server, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("done")
        weft = str(tmp_path / "venv" / "bin" / "weft")
        listed = _run(weft, "queue", "list", "--servers", server, cwd=tmp_path)
        assert "orders.dead" in listed.stdout, listed.stderr
    served = _run(weft, "serve", "--data", str(tmp_path / "data"), cwd=tmp_path)
    assert served.returncode == 2
    error, advice = served.stderr.splitlines()
    assert error.startswith("error: ")
    assert f"no wheel for Python {version}: run the node with Python 3.11 or 3.12" in error
    assert advice.startswith("try: ")
