"""Another language: a Node.js program that has only proto/weft.proto works with a real node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import xxhash

import weft
from tests.process.live_node import LiveNode

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "tests" / "node_js"
INSTALL_SECONDS_MAX: Final = 180
#: Error codes by which npm reports a missing network, as opposed to a wrong package.json.
OFFLINE: Final = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "ENETUNREACH",
    "ECONNRESET",
)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program and its packages in a folder, kept while package.json is unchanged."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    wanted = xxhash.xxh3_64_hexdigest((SOURCE / "package.json").read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache / "weft-tests" / f"node_js-{wanted}"
    if not kept.exists():
        draft = tmp_path_factory.mktemp("node_js")
        shutil.copy(SOURCE / "package.json", draft)
        _install(draft)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(draft, kept)
    return kept


def _install(folder: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode and any(word in done.stderr for word in OFFLINE):
        pytest.skip("npm cannot reach its registry, and the packages are not here yet")
    assert done.returncode == 0, done.stderr


def test_a_node_js_transaction(modules: Path, tmp_path: Path) -> None:
    with LiveNode(tmp_path / "node") as node:
        node.start()
        with weft.connect(node.grpc) as client:
            client.create_queue("from")
            client.create_queue("to")
            for start in range(0, 1000, 100):
                bodies = [b"message %d" % number for number in range(start, start + 100)]
                client.queue("from").push_many(bodies)
            program = ROOT / "examples" / "node-transform" / "transform.js"
            proto = str(ROOT / "proto" / "weft.proto")
            done = subprocess.run(
                ["node", str(program), proto, node.grpc, "from", "to", "1000"],
                env=os.environ | {"NODE_PATH": str(modules / "node_modules")},
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout == "transformed 1000\n"
            counted = client.kv.lookup("transformed/to") or b""
            assert sum(map(int, filter(None, counted.split(b",")))) == 1000
            found = [each.body for each in client.queue("to").pop_many(2000, wait_ms=5000)]
            assert sorted(found) == sorted(b"MESSAGE %d" % number for number in range(1000))
            assert client.queue("from").stats().ready == 0


def test_a_node_js_client(modules: Path, tmp_path: Path) -> None:
    with LiveNode(tmp_path / "node") as node:
        node.start()
        done = subprocess.run(
            ["node", str(SOURCE / "queue.js"), node.grpc, str(ROOT / "proto" / "weft.proto")],
            env=os.environ | {"NODE_PATH": str(modules / "node_modules")},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "node.js: ok" in done.stdout
        assert "Traceback" not in node.log
        assert node.stop() == 0
