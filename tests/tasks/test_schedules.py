"""Schedules: bad input, daylight saving time, missed ticks, and every tick once."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

import weft
from tests.tasks import scheduled
from tests.tasks.pending_calls import QUEUE, begin_chain, next_due, pending_calls
from weft import tasks
from weft.client.transport.blocking_link import run
from weft.tasks.call import decode_call
from weft.tasks.schedule import (
    TICK,
    DueRecord,
    ScheduleRecord,
    begin_schedules,
    due_key,
    record_key,
)
from weft.tasks.testing import worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
BERLIN = ZoneInfo("Europe/Berlin")


def made(**options: Any) -> tasks.App:
    app = tasks.App("made")
    note = app.task(name="note")(lambda text="x": None)
    app.schedule("one", note, **{"cron": "0 2 * * *", **options})
    return app


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cron": "0 25 * * *"}, "schedule one: '0 25 \\* \\* \\*' is no cron expression"),
        ({"cron": "often"}, "is no cron expression"),
        ({"cron": 5}, "is no cron expression"),
        ({"cron": "0 0 30 2 *"}, "no cron expression|no time within"),
        ({"tz": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
        ({"tz": 5}, "there is no time zone"),
        ({"missed": "twice"}, "missed must be one of once, skip, all"),
        ({"args": [1, 2]}, "too many positional"),
    ],
)
def test_bad_schedules_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(weft.InvalidArgument, match=says):
        made(**options)


def test_names_of_schedules() -> None:
    app = made()
    note = app.tasks["note"]
    with pytest.raises(weft.InvalidArgument, match="has a schedule 'one' already"):
        app.schedule("one", note, cron="* * * * *")
    with pytest.raises(weft.InvalidArgument, match="queue"):
        app.schedule("a b", note, cron="* * * * *")
    with pytest.raises(weft.InvalidArgument, match="of another app"):
        app.schedule("two", scheduled.mark, cron="* * * * *")


def at(*moment: int, fold: int = 0) -> float:
    year, month, day, hour, minute = moment
    return datetime(year, month, day, hour, minute, tzinfo=BERLIN, fold=fold).timestamp()


def times(cron: str, since: float, count: int) -> list[float]:
    schedule = made(cron=cron, tz="Europe/Berlin").schedules["one"]
    found: list[float] = []
    while len(found) < count:
        found.append(schedule.after(found[-1] if found else since))
    return found


def test_a_time_that_a_day_does_not_have_is_the_end_of_the_gap() -> None:
    """On 29 March 2026 the hour from 2 to 3 does not exist in Berlin."""
    assert times("30 2 * * *", at(2026, 3, 28, 12, 0), 2) == [
        at(2026, 3, 29, 3, 0),
        at(2026, 3, 30, 2, 30),
    ]


def test_a_fixed_time_that_a_day_has_twice_happens_once() -> None:
    """On 25 October 2026 the hour from 2 to 3 happens twice in Berlin."""
    assert times("30 2 * * *", at(2026, 10, 24, 12, 0), 2) == [
        at(2026, 10, 25, 2, 30),
        at(2026, 10, 26, 2, 30),
    ]
    assert times("30 * * * *", at(2026, 10, 25, 1, 0), 4) == [
        at(2026, 10, 25, 1, 30),
        at(2026, 10, 25, 2, 30),
        at(2026, 10, 25, 2, 30, fold=1),
        at(2026, 10, 25, 3, 30),
    ]


@pytest.mark.parametrize(
    ("missed", "runs", "following"), [("once", 1, 100), ("skip", 0, 100), ("all", 1, 60)]
)
def test_missed_ticks(
    missed: str, runs: int, following: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick runs a hundred minutes late; `following` is the next tick, in minutes after it."""
    app = made(cron="0 * * * *" if missed == "all" else "*/10 * * * *", missed=missed)
    due = at(2026, 5, 1, 12, 0)
    record = msgspec.msgpack.encode(ScheduleRecord("g", "", "note"))
    monkeypatch.setattr(time, "time", lambda: due + 99 * 60)
    app._client = Stored({record_key("made", "one"): record})  # type: ignore[assignment]
    with app.inline() as runner:
        ran: list[Any] = []
        monkeypatch.setattr(runner, "run", lambda body, run=runner.run: ran.append(body))
        runner_run = type(runner).run
        runner_run(runner, tick("one", "g", due))
        names = [decode_call(body).name for body in ran]
        assert names.count("note") == runs
        (next_tick,) = [body for body in ran if decode_call(body).name == TICK]
        assert msgspec.msgpack.decode(decode_call(next_tick).args)[2] == due + following * 60
        ran.clear()
        assert runner_run(runner, tick("one", "other", due)).result() == "replaced"
        assert ran == []
        app._client = Stored({})  # type: ignore[assignment]
        assert runner_run(runner, tick("one", "g", due)).result() == "removed"
        app._client = None


class Stored:
    """A client whose table has these keys."""

    def __init__(self, rows: dict[str, bytes]) -> None:
        self.kv = self
        self.lookup = rows.get


def tick(name: str, generation: str, due: float) -> bytes:
    from weft.tasks.schedule import tick_body

    return tick_body(name, generation, due)


def test_every_tick_happens_once_over_deaths(node: Cluster) -> None:
    client = node.client()
    first = begin_chain(client, node.servers)

    def ticked(since: float, ticks: int) -> None:
        deadline = time.monotonic() + 60
        while next_due(client) < since + ticks:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    app = "tests.tasks.scheduled:app"
    with worker_process(app, node.servers, "-c", "2", folder=ROOT) as worker:
        worker.logged("takes")
        ticked(first, 2)
        worker.kill_all()
    with worker_process(app, node.servers, folder=ROOT) as worker:
        ticked(first, 4)
        node.kill()
        node.start()
        ticked(first, 6)
        assert worker.stop() == 0
    calls = pending_calls(client)
    (last,) = calls.ticks  # one chain
    submitted = client.queue("timed.marks").stats().ready
    assert submitted + calls.marks == last - first, "each tick before the next one happened once"


def test_a_purged_chain_is_begun_again_and_an_ended_one_is_not(node: Cluster) -> None:
    client = node.client()
    scheduled.app.connect(node.servers)
    key = record_key("timed", "seconds")
    client.kv.remove(key)
    client.create_queue(QUEUE, update=True)
    client.queue(QUEUE).purge()
    lost = ScheduleRecord("old", scheduled.app.schedules["seconds"].settings, "mark")
    for overdue_s, begun in ((3, False), (601, True)):
        row = DueRecord("old", float(int(time.time() - overdue_s)))
        client.kv.insert(due_key("timed", "seconds"), msgspec.msgpack.encode(row))
        client.kv.insert(key, msgspec.msgpack.encode(lost))
        run(begin_schedules(scheduled.app, scheduled.app.session, [QUEUE]))
        data = client.kv.lookup(key)
        assert data is not None
        record = msgspec.msgpack.decode(data, type=ScheduleRecord)
        assert (record.generation != "old") is begun
    run(begin_schedules(scheduled.app, scheduled.app.session, ["timed.other"]))
    assert scheduled.app.end_schedule("seconds")
    assert not scheduled.app.end_schedule("seconds")
    scheduled.app.close()
