"""A node that works on during its last write: no answer is sent before the write is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.served import eventually
from weft.errors import StorageError
from weft.persistence.directory import DataDirectory
from weft.persistence.memory import MemoryStore
from weft.persistence.store import Change
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.config import Config
from weft.server.node.node import Node
from weft.server.node.round import BACKGROUND_BYTES_MIN

WAIT_S = 60.0
QUEUE = "orders"


class GatedStore(MemoryStore):
    """Writes wait while the gate is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.writes: list[list[Change]] = []

    def write(self, changes: list[Change], *, sync: bool) -> None:
        if not self.gate.is_set():
            self.waiting.set()
            assert self.gate.wait(WAIT_S)
        super().write(changes, sync=sync)
        self.writes.append(changes)


class Rig:
    def __init__(self, path: Path) -> None:
        self.directory = DataDirectory.open(str(path))
        self.store = GatedStore()
        config = Config(data=str(path), listen="127.0.0.1:0", durability="disk", reserve_bytes=0)
        self.node = Node(config, self.directory, self.store)
        self.node.start()
        self._batches = 0
        self.ask(wire.CreateQueue(QUEUE, Settings()))

    def submit(self, request: wire.AnyRequest, *payload: bytes) -> list[wire.AnyAnswer]:
        """Submit a request; the returned list gets the answer."""
        answers: list[wire.AnyAnswer] = []
        self.node.submit(request, payload, lambda answer, _: answers.append(answer))
        return answers

    def ask(self, request: wire.AnyRequest, *payload: bytes) -> wire.AnyAnswer:
        answers = self.submit(request, *payload)
        eventually(lambda: bool(answers))
        return answers[0]

    def push(self, size: int = BACKGROUND_BYTES_MIN) -> list[wire.AnyAnswer]:
        self._batches += 1
        payload = wire.encode(wire.Payload([bytes(size)]))
        return self.submit(wire.Push(QUEUE, 1, self._batches, 1), payload)

    def shut(self) -> list[wire.AnyAnswer]:
        """A large push with a write that does not end."""
        self.store.waiting.clear()
        self.store.gate.clear()
        answers = self.push()
        assert self.store.waiting.wait(WAIT_S)
        return answers

    def handled(self) -> None:
        """Return when the node has handled everything submitted before."""
        done = threading.Event()
        assert self.node.look(done.set)
        assert done.wait(WAIT_S), "the node waits for the disk"

    def close(self) -> None:
        self.store.gate.set()
        self.node.stop()
        self.directory.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_nothing_is_said_before_its_write_has_ended(rig: Rig) -> None:
    first = rig.shut()
    second, third = rig.push(), rig.push(1)
    popped = rig.submit(wire.Pop(QUEUE, 1))
    rig.handled()
    assert not first
    assert not second
    assert not third
    assert not popped
    before = len(rig.store.writes)
    rig.store.gate.set()
    eventually(lambda: bool(first and second and third and popped))
    assert isinstance(popped[0], wire.Popped)
    assert len(popped[0].lent) == 1, "what was pushed and not yet written can be popped"
    assert len(rig.store.writes) == before + 2, "what came meanwhile is one write"


def test_an_answer_that_changes_nothing_waits_for_what_it_rests_on(rig: Rig) -> None:
    pushed = rig.shut()
    popped = rig.submit(wire.Pop(QUEUE, 1))
    rig.handled()
    assert not popped, "the message is not on disk"
    rig.store.gate.set()
    eventually(lambda: bool(pushed and popped))


def test_what_is_settled_while_a_write_is_under_way_is_in_order(rig: Rig) -> None:
    rig.push()
    popped = rig.ask(wire.Pop(QUEUE, 1))
    assert isinstance(popped, wire.Popped)
    (lent,) = popped.lent
    rig.shut()
    receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce)
    acked, again = rig.submit(wire.Ack(QUEUE, [receipt])), rig.submit(wire.Ack(QUEUE, [receipt]))
    rig.handled()
    assert not acked
    assert not again
    rig.store.gate.set()
    eventually(lambda: bool(acked and again))
    for answer in (*acked, *again):
        assert isinstance(answer, wire.Settled)
        assert not answer.lost


def test_small_writes_are_not_handed_over(rig: Rig) -> None:
    rig.ask(wire.Pop(QUEUE, 1))
    pushed = rig.push(1)
    eventually(lambda: bool(pushed))
    assert not any(thread.name == "weft-writer" for thread in threading.enumerate())


def test_a_write_that_fails_ends_the_node_and_nobody_is_told_that_it_was_done(rig: Rig) -> None:
    first = rig.shut()
    second = rig.push()
    rig.handled()
    rig.store.fail_next_write(OSError("no space left on device"))
    rig.store.gate.set()
    eventually(lambda: bool(first and second))
    for (answer,) in (first, second):
        assert isinstance(answer, wire.Failure)
    assert isinstance(rig.node.failure, StorageError)


def test_a_stop_writes_and_says_all_of_it(rig: Rig) -> None:
    first, second = rig.shut(), rig.push()
    rig.handled()
    threading.Timer(0.1, rig.store.gate.set).start()
    rig.node.stop()
    for (answer,) in (first, second):
        assert isinstance(answer, wire.Pushed)
