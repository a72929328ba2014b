"""Verifies a stopped node's data directory: reads every record and checks every checksum.

The check takes the node's own lock on the directory, so that no node can run there meanwhile.
Opening LevelDB rewrites LevelDB's log and manifest; the check itself writes no record.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from weft.client.cli import extras
from weft.client.cli.advice import TRY
from weft.client.cli.units import count, size
from weft.errors import MissingExtra, StoreDamaged, StoreLocked, WeftError

from .finding import Finding, check_private

#: Maximum number of damaged records listed by name; further ones are only counted.
NAMED_MAX: Final = 10
_TELL_EVERY: Final = 256

#: Callback with the number of records and bytes read so far.
OnRecord = Callable[[int, int], None]


def check_data(path: str, on_record: OnRecord) -> list[Finding]:
    check = f"{path} data"
    if not (Path(path) / "node.json").exists() and not (Path(path) / "store").exists():
        advice = "pass the directory of `weft serve --data`"
        return [Finding("FAIL", check, "not a data directory of a node", advice)]
    try:
        directory = extras.load("weft.persistence.directory").DataDirectory.open(path)
    except StoreLocked as error:
        return [Finding("WARN", check, f"not checked: {error.message}", "stop the node first")]
    except (WeftError, MissingExtra) as error:
        return [Finding("FAIL", check, error.message, TRY[error.code])]
    try:
        return [
            check_private("data directory", path, 0o700),
            *_check_store(check, directory, on_record),
        ]
    finally:
        directory.close()


def _check_store(check: str, directory: Any, on_record: OnRecord) -> list[Finding]:
    try:
        store = directory.open_store()
    except WeftError as error:
        return [Finding("FAIL", check, error.message, TRY[error.code])]
    try:
        verify = _Verify(store, on_record)
        verify.run()
    finally:
        store.close()
    damage = verify.damage
    if not damage:
        found = f"{count(verify.records)} records, {size(verify.bytes)}: all checksums match"
        return [Finding("OK", check, found)]
    named = [Finding("FAIL", check, one, TRY[StoreDamaged.code]) for one in damage[:NAMED_MAX]]
    if len(damage) > NAMED_MAX:
        more = f"{count(len(damage) - NAMED_MAX)} more damaged records"
        named.append(Finding("FAIL", check, more, TRY[StoreDamaged.code]))
    return named


class _Verify:
    """One pass over a store. The pass continues after a damaged record, to report all of them."""

    def __init__(self, store: Any, on_record: OnRecord) -> None:
        self._store = store
        self._layout = extras.load("weft.persistence.layout")
        self._on_record = on_record
        self.records = 0
        self.bytes = 0
        self.damage: list[str] = []

    def run(self) -> None:
        for kind in self._layout.KINDS:
            try:
                self._scan(*self._layout.kind_range(kind))
            except StoreDamaged as error:
                # LevelDB cannot continue this scan; records of other kinds may be in intact files.
                self._note(error)
        self._on_record(self.records, self.bytes)

    def _scan(self, start: bytes, stop: bytes) -> None:
        path = os.fspath(self._store.path)
        for key, record in self._store.scan(start, stop):
            self.records += 1
            self.bytes += len(key) + len(record)
            if self.records % _TELL_EVERY == 0:
                self._on_record(self.records, self.bytes)
            try:
                self._layout.unseal(key, record, path)
            except StoreDamaged as error:
                self._note(error)

    def _note(self, error: StoreDamaged) -> None:
        if error.message not in self.damage:
            self.damage.append(error.message)
