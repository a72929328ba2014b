"""A learner removed and added again in the same epoch has discarded its data in between."""

from __future__ import annotations

from weft.dht import view as views
from weft.dht.core import Core
from weft.dht.log import encode
from weft.dht.messages import AnyMessage, AppendEntries, EntriesAppended, Ping
from weft.dht.view import Member, ReplicaSet, View
from weft.persistence.memory import MemoryStore

from .replica_rig import ReplicaRig, put


def _place(rig: ReplicaRig, learners: str, version: int, of: str = "abc") -> None:
    for name in of:
        rig[name].learn(ReplicaSet(1, ("a", "b"), tuple(learners)), 2, version)
        if name == "c" and not learners:
            rig["c"].wipe()  # as the core does
        rig.end(name)


def test_what_it_said_before_it_forgot_does_not_count() -> None:
    rig = ReplicaRig("abc")
    primary = rig.active("ab", "c")
    rig.propose("a", put("k"))
    late: list[tuple[str, str, AnyMessage]] = []

    def keep(sender: str, to: str, message: AnyMessage) -> bool:
        if isinstance(message, EntriesAppended) and sender == "c":
            late.append((sender, to, message))
        return False

    rig.remind("a")
    rig.play(drop=keep)
    assert not primary.primary.want_grow("c"), "its answer would come with a ping, and is asked for"
    rig.end("a")
    rig.play(drop=keep)
    assert late
    assert primary.primary.want_grow("c")
    primary.primary.wait_only_for("")
    _place(rig, "", 2)
    assert rig["c"].empty
    for each in late:
        rig.hear(*each)
    assert not primary.primary.want_grow("c"), "it is no learner"
    _place(rig, "c", 3, of="ab")
    rig.in_flight.clear()  # nothing reaches c for now
    for each in late:
        rig.hear(*each)
    assert not primary.primary.want_grow("c"), "it has nothing"
    _place(rig, "c", 3, of="c")
    for _ in range(3):
        rig.remind("a")
        rig.play()
    assert rig["c"].log.end == primary.log.end
    assert primary.primary.want_grow("c")


def _core(view: View) -> tuple[Core, MemoryStore]:
    store = MemoryStore()
    core = Core("c", store, partitions=1, entropy=lambda below: 0)
    core.recover(0)
    core.begin(1)
    core.learn(view)
    store.write(core.end(), sync=True)
    core.take_sends()
    return core, store


def _view(version: int, place: ReplicaSet) -> View:
    members = {name: Member(name, name) for name in "abc"}
    return View(version, ("a", "b", "c"), (), members, (place, views.ReplicaSet(1, ("a", "b"))), 2)


def _append(epoch: int, since: int) -> AppendEntries:
    return AppendEntries(0, epoch, (0, 0), [(1, epoch, encode(put("k")), [])], 0, 0, since)


def test_it_says_nothing_before_it_knows_the_view_in_which_it_learns() -> None:
    """The view of its addition, or an earlier one, may make the learner discard its data."""
    core, _ = _core(_view(7, ReplicaSet(1, ("a", "b"), ("c",))))
    core.begin(2)
    core.receive("a", _append(1, since=9))
    core.end()
    sends = core.take_sends()
    assert core.replicas[0].empty
    assert [type(message) for to, message in sends if to == "a"] == [Ping]
    core.begin(3)
    core.learn(_view(9, ReplicaSet(1, ("a", "b"), ("c",))))
    core.receive("a", _append(1, since=9))
    core.end()
    assert ("a", EntriesAppended(0, 1, 1, 9)) in core.take_sends()


def test_an_old_view_does_not_make_it_forget_what_a_newer_primary_gave_it() -> None:
    core, _ = _core(_view(3, ReplicaSet(1, ("a", "b"))))
    core.begin(2)
    core.receive("a", _append(4, since=0))
    assert not core.replicas[0].empty
    core.learn(_view(5, ReplicaSet(3, ("a", "b"))))
    assert not core.replicas[0].empty, "epoch 4 is newer, and may name it"
    core.learn(_view(8, ReplicaSet(5, ("a", "b"))))
    assert core.replicas[0].empty, "it is not wanted"
