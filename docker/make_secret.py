"""Makes a password in a file, once: there is none in the repository and none by default."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path


def make(path: Path) -> bool:
    """Whether it was made; one that is there stays."""
    if path.exists():
        return False
    draft = path.with_suffix(".tmp")
    # Readable for the service that it is for, which runs as another user; the volume is its own.
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o444)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(24))
    draft.replace(path)
    return True


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {'made' if make(Path(name)) else 'was there'}")
