"""create, update, list, describe; test_removal.py has delete and purge."""

from __future__ import annotations

import pytest

from tests.engine.rig import Asked, Rig, queue_names
from weft import limits
from weft.errors import InvalidArgument, Overloaded, QueueExists, QueueFull, QueueNotFound
from weft.persistence import layout
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine import admin as admin_module

# --- create -----------------------------------------------------------------------------------


def test_a_queue_is_made_once(rig: Rig) -> None:
    assert rig.create("new", lease_ms=500) is True
    assert rig.create("new", lease_ms=500) is False
    rig.restart()
    assert rig.create("new", lease_ms=500) is False
    assert rig.stats("new").settings == Settings(lease_ms=500)


def test_other_settings_are_named_and_nothing_changes(rig: Rig) -> None:
    rig.create("new", lease_ms=500, retention_ms=9)
    with pytest.raises(QueueExists, match="retention_ms is 9") as caught:
        rig.create("new", lease_ms=500)
    assert "lease_ms is" not in caught.value.message
    assert rig.stats("new").settings.retention_ms == 9


@pytest.mark.parametrize("name", ["", "a" * 81, "a b", "a/b", "é", "a\n", "a:b", "*"])
def test_a_bad_name_is_refused(rig: Rig, name: str) -> None:
    with pytest.raises(InvalidArgument, match="1 to 80"):
        rig.create(name)
    with pytest.raises(InvalidArgument, match=r"1 to 80|go together"):
        rig.create("new", max_deliveries=1, dead_letter=name)
    assert queue_names(rig, wire.ListQueues()) == (["q"], False)


def test_names_at_their_bounds_are_taken(rig: Rig) -> None:
    for name in ("a", "Z9._-", "x" * 80):
        assert rig.create(name)


BOUNDS = {
    "lease_ms": (limits.LEASE_MS_MIN, limits.LEASE_MS_MAX),
    "retention_ms": (0, limits.RETENTION_MS_MAX),
    "dedup_window_ms": (0, limits.DEDUP_WINDOW_MS_MAX),
    "max_messages": (0, 1 << 40),
}


@pytest.mark.parametrize(("setting", "low", "high"), [(k, *v) for k, v in BOUNDS.items()])
def test_settings_have_bounds(rig: Rig, setting: str, low: int, high: int) -> None:
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidArgument, match=setting):
            rig.create("new", **{setting: value})
        with pytest.raises(InvalidArgument, match=setting):
            rig.update("q", **{setting: value})
    assert rig.create("low", **{setting: low})
    rig.update("q", **{setting: high})
    rig.restart()
    assert getattr(rig.stats("low").settings, setting) == low
    assert getattr(rig.stats("q").settings, setting) == high


def test_max_deliveries_has_bounds(rig: Rig) -> None:
    most = limits.MAX_DELIVERIES_MAX
    for value in (-1, most + 1):
        with pytest.raises(InvalidArgument, match="max_deliveries"):
            rig.create("new", max_deliveries=value, dead_letter="d")
    assert rig.create("new", max_deliveries=most, dead_letter="d")


def test_max_deliveries_and_dead_letter_go_together(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="go together"):
        rig.create("new", max_deliveries=3)
    with pytest.raises(InvalidArgument, match="go together"):
        rig.create("new", dead_letter="d")
    with pytest.raises(InvalidArgument, match="go together"):
        rig.update("q", max_deliveries=3)


def test_a_queue_is_not_its_own_dead_letter(rig: Rig) -> None:
    with pytest.raises(InvalidArgument, match="own dead letter"):
        rig.create("new", max_deliveries=1, dead_letter="new")
    with pytest.raises(InvalidArgument, match="own dead letter"):
        rig.update("q", max_deliveries=1, dead_letter="q")
    assert queue_names(rig, wire.ListQueues()) == (["q"], False)


def test_the_dead_letter_is_made_along(rig: Rig) -> None:
    rig.create("new", max_deliveries=1, dead_letter="new.dead")
    rig.update("q", max_deliveries=2, dead_letter="q.dead")
    assert queue_names(rig, wire.ListQueues())[0] == ["new", "new.dead", "q", "q.dead"]
    assert rig.stats("q.dead").settings == Settings()


def test_queues_have_a_limit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 3)
    rig.create("two")
    with pytest.raises(Overloaded, match="2 of at most 3 queues"):
        rig.create("three", max_deliveries=1, dead_letter="four")
    assert rig.create("three")
    assert rig.create("three") is False
    with pytest.raises(Overloaded):
        rig.update("q", max_deliveries=1, dead_letter="four")
    rig.update("q", max_deliveries=1, dead_letter="two")


def test_ids_of_queues_are_never_shared(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """When two names hash alike, the second one draws another id."""
    assert admin_module._CREATED_MASK == (1 << 47) - 1
    monkeypatch.setattr(admin_module, "_CREATED_MASK", 3)
    for name in ("a", "b"):
        rig.create(name)
    created = {queue.created for queue in rig.engine.state.queues.values()}
    assert len(created) == 3
    assert 0 not in created


def test_two_verbs_on_one_queue_in_one_round_are_one_write(rig: Rig) -> None:
    rig.round(
        Asked(wire.UpdateQueue("q", {"lease_ms": 200}), (), 1),
        Asked(wire.UpdateQueue("q", {"lease_ms": 300}), (), 2),
        Asked(wire.DeleteQueue("q"), (), 3),
        Asked(wire.CreateQueue("q", Settings(lease_ms=400)), (), 4),
    )
    rig.crash()
    assert rig.stats("q").settings.lease_ms == 400
    assert rig.store.get(layout.of_catalogue("q")) is not None


# --- update -----------------------------------------------------------------------------------


def test_an_update_changes_what_it_names(rig: Rig) -> None:
    rig.update("q", retention_ms=5000, max_messages=7)
    settings = rig.stats("q").settings
    assert (settings.retention_ms, settings.max_messages, settings.lease_ms) == (5000, 7, 10_000)
    rig.restart()
    assert rig.stats("q").settings == settings


def test_every_setting_takes_effect(rig: Rig) -> None:
    rig.push("q", b"a", b"b", batch=1)
    rig.update("q", lease_ms=500, max_deliveries=1, dead_letter="d", max_messages=2)
    assert rig.pop("q")[0].lent.lease_ms == 500
    with pytest.raises(QueueFull, match="2 messages of at most 2"):
        rig.push("q", b"c")
    rig.advance(500)
    assert rig.counts("d") == (1, 0, 0)
    rig.update("q", retention_ms=1000)
    rig.advance(1000)
    assert rig.counts("q") == (0, 0, 0)
    rig.update("q", dedup_window_ms=0)
    assert not rig.push("q", b"x", batch=50).duplicate
    assert not rig.push("q", b"x", batch=50).duplicate


#: The settings of another kind of queue: see test_stochastic.py.
STOCHASTIC = ("kind", "buffers", "max_hops", "access")


def test_every_setting_can_be_changed_by_name(rig: Rig) -> None:
    changes: dict[str, int | str] = {
        "lease_ms": 111,
        "max_deliveries": 2,
        "dead_letter": "d",
        "retention_ms": 333,
        "dedup_window_ms": 444,
        "max_messages": 555,
        "expire_idle_ms": 6666,
        "share": 250,
        "rate_limit": 666,
        "max_in_flight": 777,
    }
    # A queue with graphs drops no message by its age; see `test_parent_counts`.
    fixed = {"ordered", "grouped", "keep_leases", "graphs", *STOCHASTIC}
    assert set(changes) == set(Settings.__struct_fields__) - fixed
    rig.update("q", **changes)
    assert rig.stats("q").settings == Settings(**changes)  # type: ignore[arg-type]
    rig.update("q", max_deliveries=0, dead_letter="")
    assert rig.delete("d") == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nope": 1}, "unknown setting: nope"),
        ({"lease_ms": "long"}, "lease_ms"),
        ({"dead_letter": 5}, "dead_letter"),
        ({"lease_ms": 500, "retention_ms": -1}, "retention_ms"),
    ],
)
def test_a_bad_update_changes_nothing(rig: Rig, changes: dict[str, int | str], says: str) -> None:
    before = dict(rig.store._rows)
    with pytest.raises(InvalidArgument, match=says):
        rig.update("q", **changes)
    assert rig.store._rows == before
    assert rig.stats("q").settings == Settings(lease_ms=10_000)


# --- list, describe ---------------------------------------------------------------------------


def test_a_listing_is_sorted_and_in_pages(rig: Rig) -> None:
    for name in ("b", "a", "c.1", "c.2"):
        rig.create(name)
    assert queue_names(rig, wire.ListQueues()) == (["a", "b", "c.1", "c.2", "q"], False)
    assert queue_names(rig, wire.ListQueues(limit=2)) == (["a", "b"], True)
    assert queue_names(rig, wire.ListQueues(after="b", limit=3)) == (["c.1", "c.2", "q"], False)
    assert queue_names(rig, wire.ListQueues("c.")) == (["c.1", "c.2"], False)
    assert queue_names(rig, wire.ListQueues("c.", "c.1", 1)) == (["c.2"], False)
    for limit in (0, limits.POP_COUNT_MAX + 1):
        with pytest.raises(InvalidArgument, match="limit"):
            rig.call(wire.ListQueues(limit=limit))


def test_figures_are_what_happened(rig: Rig) -> None:
    rig.push("q", b"aa", b"bb", batch=1)
    rig.push("q", b"aa", b"bb", batch=1)
    rig.push("q", b"cc", delay_ms=9000)
    taken = rig.pop("q", 2)
    rig.ack("q", taken[0])
    rig.advance(3000)
    stats = rig.stats("q")
    assert (stats.ready, stats.leased, stats.delayed) == (0, 1, 1)
    assert (stats.pushed, stats.delivered, stats.acked, stats.duplicates) == (3, 2, 1, 1)
    assert stats.oldest_ms == 0, "nothing is ready"
    rig.nack("q", taken[1])
    assert rig.stats("q").oldest_ms == 3000
    rig.ack("q", *rig.pop("q"))
    rig.advance(6000)
    rig.ack("q", *rig.pop("q"))
    assert rig.stats("q").bytes == 0


def test_verbs_on_an_unknown_queue(rig: Rig) -> None:
    for request in (
        wire.UpdateQueue("nope", {}),
        wire.DeleteQueue("nope"),
        wire.DescribeQueue("nope"),
        wire.PurgeQueue("nope"),
        wire.Redrive("nope"),
    ):
        with pytest.raises(QueueNotFound, match="nope"):
            rig.call(request)


def test_a_verb_that_is_not_the_engines_is_refused(rig: Rig) -> None:
    for request in (wire.GetView(), wire.Status()):
        with pytest.raises(InvalidArgument, match="not for the engine"):
            rig.call(request)
