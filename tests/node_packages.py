"""Node.js programs in tests: their packages, and a program that transforms."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tools.languages import npm_packages

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "tests" / "node_js"
#: A program that consumes, transforms and produces over gRPC.
TRANSFORM: Final = ROOT / "examples" / "node-transform" / "transform.js"
PROTO: Final = ROOT / "proto" / "weft.proto"


def environment() -> dict[str, str]:
    """The environment of a Node.js program. Raises Missing without Node.js, or its packages."""
    return os.environ | {"NODE_PATH": str(npm_packages.installed(SOURCE / "package.json"))}


def transform(servers: list[str], source: str, target: str, messages: int = 0) -> list[str]:
    """The command of the program: until it has transformed so many messages; 0: without end."""
    words = [str(PROTO), ",".join(servers), source, target, str(messages)]
    return ["node", str(TRANSFORM), *words]
