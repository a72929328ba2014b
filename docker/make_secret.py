"""Writes a random password to a file once; the repository contains no default password."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path


def make(path: Path) -> bool:
    """True if the file was created; an existing file stays unchanged."""
    if path.exists():
        return False
    draft = path.with_suffix(".tmp")
    # World-readable, because the service runs as another user; only that service mounts the volume.
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o444)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(24))
    draft.replace(path)
    return True


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {'made' if make(Path(name)) else 'was there'}")
