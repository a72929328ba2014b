"""The audit log: one line per event, rotated when full; unauthenticated callers cannot fill it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from weft.errors import PermissionDenied
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.security import audit as audit_module
from weft.server.security.access import Principal
from weft.server.security.audit import Audit, audited
from weft.server.security.caller import Caller

WHO = Caller(Principal("ann", ()), "10.0.0.7")
PURGE = wire.PurgeQueue("orders")


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_who_what_from_where_and_how_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, "node1")
    audit.done(WHO, PURGE, wire.Done(3))
    audit.done(WHO, wire.CreateQueue("q", Settings()), wire.Failure("QUEUE_EXISTS", "it is", False))
    audit.done(WHO, wire.Leave("node2", True), wire.Done())
    audit.refused(Caller(None, "10.0.0.8"), wire.Push("q", 1, 1, 1), PermissionDenied("no"))
    audit.close()
    first, second, third, fourth = lines(path)
    assert {name: first[name] for name in ("node", "who", "from", "action", "on", "result")} == {
        "node": "node1", "who": "ann", "from": "10.0.0.7", "action": "PurgeQueue", "on": "orders",
        "result": "OK",
    }  # fmt: skip
    assert first["detail"] == "3 messages"
    assert (second["result"], third["on"], third["detail"]) == ("QUEUE_EXISTS", "node2", "force")
    assert (fourth["who"], fourth["result"]) == ("", "PERMISSION_DENIED")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_goes_on_after_a_restart_and_is_turned_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "BYTES_MAX", 500)
    monkeypatch.setattr(audit_module, "FILES_MAX", 3)
    path = tmp_path / "audit.jsonl"
    for number in range(10):
        audit = Audit(path, "node1")
        audit.done(WHO, wire.PurgeQueue(f"q{number}"), wire.Done())
        audit.close()
    files = sorted(each.name for each in tmp_path.iterdir())
    assert set(files) <= {"audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"}
    seen = [line["on"] for name in reversed(files) for line in lines(tmp_path / name)]
    assert seen == [f"q{number}" for number in range(10 - len(seen), 10)]
    assert len(seen) >= 4


def test_a_flood_of_refusals_is_counted_and_not_written(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "a", "node1")
    for _ in range(1000):
        audit.refused(WHO, PURGE, PermissionDenied("no"))
    audit.done(WHO, PURGE, wire.Done())
    found = lines(tmp_path / "a")
    assert len(found) <= 2 * audit_module.REFUSED_PER_SECOND_MAX + 1
    assert found[-1]["result"] == "OK"


def test_a_disk_that_is_full_stops_nobody(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "no such folder" / "a", "node1")
    audit.done(WHO, PURGE, wire.Done())


def test_of_a_backup_the_beginning_alone() -> None:
    assert audited(wire.Snapshot(0))
    assert not audited(wire.Snapshot(1))
    assert not audited(wire.Snapshot(0, None, 5))
    assert not audited(wire.Push("q", 1, 1, 1))
