"""Node.js for tests: the packages of `tests/node_js/package.json`, installed once by npm."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import xxhash

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "tests" / "node_js"
#: A program that consumes, transforms and produces over gRPC.
TRANSFORM: Final = ROOT / "examples" / "node-transform" / "transform.js"
PROTO: Final = ROOT / "proto" / "weft.proto"
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


class NoNodeJs(Exception):
    """Node.js programs cannot run here; the message says why."""


def environment() -> dict[str, str]:
    """The environment of a Node.js program; installs its packages, kept while package.json is
    unchanged. Raises NoNodeJs."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NoNodeJs(f"{program} is not installed")
    wanted = xxhash.xxh3_64_hexdigest((SOURCE / "package.json").read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache / "weft-tests" / f"node_js-{wanted}"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            draft = Path(folder) / "draft"
            draft.mkdir()
            shutil.copy(SOURCE / "package.json", draft)
            _install(draft)
            if not kept.exists():
                draft.rename(kept)
    return os.environ | {"NODE_PATH": str(kept / "node_modules")}


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
        raise NoNodeJs("npm cannot reach its registry, and the packages are not here yet")
    assert done.returncode == 0, done.stderr


def transform(servers: list[str], source: str, target: str, messages: int = 0) -> list[str]:
    """The command of the program: until it has transformed so many messages; 0: without end."""
    words = [str(PROTO), ",".join(servers), source, target, str(messages)]
    return ["node", str(TRANSFORM), *words]
