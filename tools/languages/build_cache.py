"""A cache of programs built from pinned sources, outside of the repository.

A key contains the hash of everything that the result depends on, so that an entry is never stale.
A build runs in a draft folder that is renamed when complete: an interrupted build leaves no entry.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import xxhash

#: Seconds for one build with downloads, on two busy cores.
BUILD_S_MAX: Final = 900.0
_TAIL_CHARACTERS: Final = 2000
#: Parts of messages by which Go, npm and Maven report an unreachable registry.
_OFFLINE: Final = (
    "dial tcp", "no such host", "i/o timeout", "TLS handshake timeout",
    "connection refused", "403 Forbidden", "502 Bad Gateway", "503 Service Unavailable",
    "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH", "ECONNRESET",
    "Could not transfer artifact", "Unknown host", "Temporary failure in name resolution",
)  # fmt: skip


class Missing(Exception):
    """A program cannot be built here; the message names the missing tool."""


class BuildFailed(Exception):
    """The compiler rejected the sources; the message has the end of its output."""


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "weft-languages"


def hash_of(parts: Iterable[bytes | str | Path]) -> str:
    """A hash of texts and of files; a folder stands for the files in it."""
    state = xxhash.xxh3_128()
    for part in parts:
        if isinstance(part, Path):
            files = sorted(each for each in part.rglob("*") if each.is_file()) or [part]
            for file in files:
                state.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        else:
            state.update((part.encode() if isinstance(part, str) else part) + b"\0")
    return state.hexdigest()[:16]


def entry(key: str, build: Callable[[Path], None]) -> Path:
    """The folder of an entry; `build` fills an empty folder unless the entry exists."""
    kept = folder() / key
    if kept.exists():
        return kept
    folder().mkdir(parents=True, exist_ok=True)
    with _locked(folder() / f"{key}.lock"):
        if not kept.exists():
            draft = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=folder()))
            try:
                build(draft)
                draft.rename(kept)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return kept


def required(program: str) -> str:
    """The path of a program of this machine."""
    found = shutil.which(program)
    if found is None:
        raise Missing(f"{program} is not installed")
    return found


def run(command: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs one step of a build; raises Missing without a network and BuildFailed otherwise."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{name} did not finish in {BUILD_S_MAX:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    said = (done.stdout + done.stderr)[-_TAIL_CHARACTERS:].strip()
    if any(word in said for word in _OFFLINE):
        raise Missing(f"{name} cannot reach its registry, and the packages are not cached: {said}")
    raise BuildFailed(f"{' '.join(command)}: {said}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process builds, another waits for the result."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
