"""Metadata lists between real nodes: which announcements reach the list's owner, and when."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from weft.dht import placement
from weft.dht.messages import AnyMessage, PeerRequest, ReadyAnnouncement
from weft.ids import partition_of
from weft.proto import wire
from weft.server.core.metadata_list import MetadataLists
from weft.server.core.owned_lists import AGAIN_US

from .clients import Batch
from .machine import Machine
from .stage import Stage
from .world import PACE, SECOND

PARTITIONS = 4
#: Messages and rounds take less than this without faults.
SOON = SECOND // 50


class Scene:
    """The owner of a list, and another node that receives messages of the queue."""

    def __init__(self) -> None:
        self.stage = Stage(3, PARTITIONS)
        self.stage.make(self.stage.queue)
        self.world = self.stage.world
        self.queue = self.stage.queue.name
        self.keeper = self.stage.primary(placement.of_text(self.queue, PARTITIONS))
        self.partition, self.holder = next(
            (number, node)
            for number in range(PARTITIONS)
            if (node := self.stage.primary(number)) is not self.keeper
        )
        self._number = 0
        #: The holder's announcements with their times; and the queries sent to list owners.
        self.words: list[tuple[int, ReadyAnnouncement]] = []
        self.wheres: list[wire.Where] = []
        carry = self.world._carry

        def tapped(sender: str, to: str, message: AnyMessage) -> None:
            if isinstance(message, ReadyAnnouncement) and sender == self.holder.name:
                self.words.append((self.world.now, message))
            if isinstance(message, PeerRequest) and isinstance(message.request, wire.Where):
                self.wheres.append(message.request)
            carry(sender, to, message)

        self.world._carry = tapped  # type: ignore[method-assign]

    def push(self) -> None:
        """Push a new batch to the holder."""
        producer = self.stage.queue.producer
        self._number = next(
            number
            for number in range(self._number + 1, self._number + 1000)
            if partition_of(producer, number, PARTITIONS) == self.partition
        )
        batch = Batch(self.stage.queue, self._number, [b"one"])
        self.world.checker.ledger.batches[producer, self._number] = batch
        request = wire.Push(self.queue, producer, self._number, 1)
        payload = wire.encode(wire.Payload(batch.bodies))
        said: list[wire.AnyAnswer] = []
        self.world.ask(
            self.holder, request, (payload,), lambda _, answer, __: said.append(answer), plain=False
        )
        self.run(SOON)
        assert [type(answer) for answer in said] == [wire.Pushed]

    def run(self, span: int) -> None:
        self.world.run(self.world.now + span)

    def after_a_ping(self) -> None:
        """Run to a moment right after a ping, so that no announcement is due soon."""
        ping_at = self.holder.node_core.core.ping_at
        while self.holder.node_core.core.ping_at == ping_at:
            self.run(1000)
        self.run(SOON)

    def pop(self, *, passes_on: bool) -> wire.Popped:
        answer = self.stage.ask(self.holder, wire.Pop(self.queue, 99, 0, 60_000, passes_on))
        assert isinstance(answer, wire.Popped)
        return answer

    def where(self, fallen: dict[str, tuple[int, int]] | None = None) -> list[str]:
        answer = self.stage.ask(self.keeper, wire.Where(self.queue, 0, fallen or {}))
        assert isinstance(answer, wire.Nodes)
        return answer.nodes

    def fallen(self, popped: wire.Popped) -> dict[str, tuple[int, int]]:
        assert popped.fell is not None
        return {self.holder.name: popped.fell}

    def wait(self, fallen: dict[str, tuple[int, int]] | None = None) -> list[wire.Nodes]:
        """Wait at the list; the returned list holds the answer once it arrives."""
        said: list[wire.Nodes] = []

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            assert isinstance(answer, wire.Nodes)
            said.append(answer)

        request = wire.Where(self.queue, 1_500, fallen or {})
        self.world.ask(self.keeper, request, (), answered, plain=False)
        self.run(SOON)
        return said


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.push()
    scene.after_a_ping()
    scene.words.clear()
    assert scene.where() == [scene.holder.name]
    return scene


def test_a_fall_is_the_callers_to_tell_if_he_says_so(scene: Scene) -> None:
    popped = scene.pop(passes_on=True)
    assert popped.lent
    assert scene.where() == [scene.holder.name], "nobody has told the keeper"
    assert scene.where(scene.fallen(popped)) == []
    assert not scene.words


def test_so_is_a_look_in_vain(scene: Scene) -> None:
    scene.pop(passes_on=True)
    again = scene.pop(passes_on=True)
    assert not again.lent
    assert scene.where(scene.fallen(again)) == []
    assert not scene.words


def test_an_old_caller_passes_nothing_on_and_the_node_tells_at_once(scene: Scene) -> None:
    popped = scene.pop(passes_on=False)
    assert (len(popped.lent), popped.fell) == (1, None)
    scene.run(SOON)
    assert [word.ready for _, word in scene.words] == [{scene.queue: 0}]
    assert scene.where() == []


def test_an_old_caller_is_not_sent_there_because_another_keeps_it_to_himself(scene: Scene) -> None:
    scene.pop(passes_on=True)
    assert not scene.pop(passes_on=False).lent
    scene.run(SOON)
    assert [word.ready for _, word in scene.words] == [{scene.queue: 0}]
    assert scene.where() == []


def test_a_promise_that_is_not_kept_is_made_good_with_the_next_ping(scene: Scene) -> None:
    scene.pop(passes_on=True)
    pinged_at = scene.holder.node_core.core.ping_at - scene.holder.skew
    scene.run(PACE.ping + SOON)
    assert [(word.ready) for _, word in scene.words] == [{scene.queue: 0}]
    assert scene.words[0][0] - pinged_at < SOON, "it costs no message of its own"
    assert scene.where() == []


def test_a_rise_after_a_fall_that_was_handed_out_is_told_at_once(scene: Scene) -> None:
    popped = scene.pop(passes_on=True)
    waiting = scene.wait(scene.fallen(popped))
    assert not waiting
    scene.push()
    assert [word.ready for _, word in scene.words] == [{scene.queue: 1}]
    assert [answer.nodes for answer in waiting] == [[scene.holder.name]]
    assert scene.where(scene.fallen(popped)) == [scene.holder.name], "the fall was before it"


@pytest.mark.parametrize("seed", range(12))
def test_who_waits_is_woken_at_once_whatever_was_said_before(seed: int) -> None:
    """With both kinds of clients, and reports of empty nodes that arrive late, twice or never."""
    scene, rng = Scene(), random.Random(seed)
    seen: list[dict[str, tuple[int, int]]] = [{}]
    for _ in range(20):
        match rng.randrange(5):
            case 0 | 1:
                scene.push()
            case 2:
                popped = scene.pop(passes_on=rng.random() < 0.7)
                if popped.fell is not None:
                    seen.append(scene.fallen(popped))
            case 3:
                scene.where(rng.choice(seen))
            case 4:
                scene.run(rng.randrange(SECOND // 2))
    popped = scene.pop(passes_on=True)
    waiting = scene.wait(scene.fallen(popped) if popped.fell is not None else rng.choice(seen))
    assert not waiting, "there is nothing, and the keeper knows it"
    scene.push()
    assert [answer.nodes for answer in waiting] == [[scene.holder.name]]


def test_one_word_for_each_time_it_runs_empty_and_gets_something(scene: Scene) -> None:
    for _ in range(3):
        scene.after_a_ping()
        scene.words.clear()
        popped = scene.pop(passes_on=True)
        assert scene.where(scene.fallen(popped)) == []
        scene.push()
        assert len(scene.words) == 1


def test_who_lies_hides_a_node_until_it_speaks_again(scene: Scene) -> None:
    lie = {scene.holder.name: (1 << 62, 1 << 62)}
    waiting = scene.wait(lie)
    assert not waiting
    scene.run(AGAIN_US + PACE.ping + SOON)
    assert [answer.nodes for answer in waiting] == [[scene.holder.name]]


def test_the_keeper_wants_to_hear_it_from_the_node_while_others_wait(scene: Scene) -> None:
    popped = scene.pop(passes_on=True)
    first = scene.wait(scene.fallen(popped))
    second = scene.wait()
    unheeded = scene.stage.ask(scene.keeper, wire.Where(scene.queue))
    assert unheeded == wire.Nodes([], heeds=False)
    scene.push()
    assert [len(first), len(second)] == [1, 0], "one message, one who is woken"
    assert not first[0].heeds
    scene.pop(passes_on=first[0].heeds)
    scene.run(SOON)
    scene.push()
    assert second == [wire.Nodes([scene.holder.name], heeds=True)]


def test_too_many_are_refused(scene: Scene) -> None:
    many = {str(number): (1, 1) for number in range(65)}
    answer = scene.stage.ask(scene.keeper, wire.Where(scene.queue, 0, many))
    assert isinstance(answer, wire.Failure)
    assert answer.code == "INVALID_ARGUMENT"


def test_a_node_that_forgot_that_it_handed_out_its_fall_would_let_them_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prove that the tests above detect a missed wake-up."""
    monkeypatch.setattr(
        MetadataLists, "_is_changed", lambda self, n: bool(self._ready(n)) != (n in self._announced)
    )
    waiting = scene.wait(scene.fallen(scene.pop(passes_on=True)))
    scene.push()
    assert not waiting


def test_a_plain_clients_pops_cost_no_word_for_a_fall(scene: Scene) -> None:
    """The client's node passes the report on."""
    third = next(
        machine
        for machine in scene.world.machines.values()
        if machine not in (scene.keeper, scene.holder)
    )

    def pop() -> list[wire.AnyAnswer]:
        said: list[wire.AnyAnswer] = []
        scene.world.ask(
            third,
            wire.Pop(scene.queue, 1, 200, 60_000),
            (),
            lambda _, a, __: said.append(a),
            plain=True,
        )
        scene.run(SECOND // 4)
        return said

    (first,) = pop()
    assert isinstance(first, wire.Popped)
    assert first.lent
    third.node_core.remote_pop._trail(
        scene.queue
    ).heeded = True  # also after a find without the list
    scene.push()
    scene.after_a_ping()
    scene.words.clear()
    scene.wheres.clear()
    (second,) = pop()
    assert isinstance(second, wire.Popped)
    assert second.lent
    assert pop() == [wire.Popped([])]
    assert any(scene.holder.name in where.fallen for where in scene.wheres)
    fell_at = [at for at, word in scene.words if word.ready == {scene.queue: 0}]
    pinged_at = scene.holder.node_core.core.ping_at - PACE.ping - scene.holder.skew
    assert all(abs(at - pinged_at) < SOON for at in fell_at), "at most with a ping"
