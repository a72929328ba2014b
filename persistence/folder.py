"""The folder of a store: its entries made durable, and its size."""

from __future__ import annotations

import os


def sync_folder(path: str) -> None:
    """Sync the folder: make created, renamed and removed entries of ``path`` durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def folder_bytes(path: str) -> int:
    """The total size of the files in ``path``."""
    total = 0
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue  # LevelDB removes old files in the background.
    return total
