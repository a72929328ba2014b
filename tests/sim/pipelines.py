"""Pipelines under faults: subscriptions that are read repeatedly, and batches published once.

A *reader* acts like a Spark driver: it reserves the next number, checkpoints it, reads it, and acks
it before going on. Now and then the reader dies, and another one takes over from the checkpoint,
while the first may still be running. A *writer* stages each batch in several tasks, of which some
fail or are attempted twice, and publishes the winners; a writer may die, too, and its successor
repeats the batch.

Invariants: the same number gives the same rows, for every reader at any time; every message is in
exactly one acked reservation; the published messages are exactly the winners of one attempt of each
batch, each message once; and at the end nothing is reserved, staged or owed any more.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial

from weft.ids import partition_of
from weft.proto import pipelines, wire
from weft.proto.settings import Settings
from weft.server.engine import stage

from . import faults, settled
from .actor import Actor, Acts, Answer, Asks, Sleeps, insist
from .options import Options
from .run import _until as until
from .violation import Violation
from .world import SECOND, World

QUEUES = ("in", "out")
APP = "app"
_WORK = 4 * SECOND
_HEAL_MAX = 60 * SECOND
_TTL_MS = 3_600_000
_Rows = tuple[tuple[int, tuple[bytes, ...]], ...]
_Reading = Generator[Asks | Sleeps, Answer | None, bool]
_Staging = Generator[Asks | Sleeps, Answer | None, tuple[int, set[bytes]]]


class Pipeline:
    """The state of one run, kept outside of the cluster."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pushed: dict[str, set[bytes]] = {"in": set()}
        self.tries = 0
        #: By queue and number: the rows that were read; by queue: the last checkpointed number.
        self.rows: dict[tuple[str, int], _Rows] = {}
        self.written: dict[str, int] = dict.fromkeys(QUEUES, 0)
        #: The last number that a reader may have acked.
        self.acking: dict[str, int] = dict.fromkeys(QUEUES, 0)
        #: By batch: the messages staged by the winners of each attempted publish.
        self.wanted: dict[int, list[frozenset[bytes]]] = {}
        self.published: set[int] = set()
        self.batches = 3 + world.rng.randrange(3)
        self.finished_writing = False
        self.hurry = False
        self.epochs: set[tuple[str, int]] = set()
        self.producers = 100
        self.numbers = 0

    # --- the queue's producer -------------------------------------------------------------

    def produce(self) -> Acts:
        world = self.world
        for number in range(world.options.pushes):
            bodies = [b"in.%d.%d" % (number, index) for index in range(world.rng.randrange(1, 5))]
            self.pushed["in"].update(bodies)
            request = wire.Push("in", 7, number, len(bodies))
            place = partition_of(7, number, world.options.partitions)
            payload = wire.encode(wire.Payload(bodies))
            yield from insist(request, (payload,), place if number % 2 else None)
            yield Sleeps(world.rng.randrange(_WORK // world.options.pushes * 2))

    # --- the reader -----------------------------------------------------------------------

    def read(self, queue: str) -> Acts:
        """Read from the checkpoint on, until killed."""
        world, name = self.world, "reader"
        nonce = world.rng.getrandbits(60)
        opened = (yield from insist(pipelines.OpenSubscription(queue, name, _TTL_MS, nonce))).said
        if not isinstance(opened, pipelines.Opened):
            self._fenced(opened)
            return
        self._that((queue, opened.epoch) not in self.epochs, f"two have epoch {opened.epoch}")
        self.epochs.add((queue, opened.epoch))
        number = self.written[queue]
        while True:
            if number and not (yield from self._read_all(queue, number)):
                return
            if number:
                self.acking[queue] = max(self.acking[queue], number)
                request = pipelines.AckThrough(queue, name, opened.epoch, number)
                said = (yield from insist(request)).said
                if not isinstance(said, wire.Done):
                    self._fenced(said)
                    return
            limit = 3 + world.rng.randrange(8)
            reserve = pipelines.Reserve(queue, name, opened.epoch, number + 1, limit, 1 << 20)
            said = (yield from insist(reserve)).said
            if not isinstance(said, pipelines.Reserved):
                self._fenced(said)
                return
            if said.reservation is None:
                yield Sleeps(100_000 if self.hurry else world.rng.randrange(100_000, 500_000))
                continue
            number += 1
            self._that(said.reservation.number == number, "another number")
            self.written[queue] = max(self.written[queue], number)

    def _fenced(self, said: wire.AnyAnswer) -> None:
        fenced = isinstance(said, wire.Failure) and said.code == "FENCED"
        late = isinstance(said, wire.Failure) and "is acked" in said.message
        self._that(fenced or late, f"a reader is told {said}")

    def _read_all(self, queue: str, number: int) -> _Reading:
        """Read all rows of a reservation, each slice at some node; False: superseded."""
        describe = pipelines.DescribeReservation(queue, "reader", number)
        said = (yield from insist(describe)).said
        if not isinstance(said, pipelines.Reserved) or said.reservation is None:
            self._that(self.acking[queue] >= number, f"{number} of {queue} is {said}")
            return True  # already acked
        rows: list[tuple[int, tuple[bytes, ...]]] = []
        for one in said.reservation.slices:
            found: list[bytes] = []
            while len(found) < one.messages:
                request = pipelines.ReadReserved(
                    queue, one.partition, one.holds, len(found), self.world.rng.randrange(1, 5)
                )
                place = one.partition if self.world.rng.random() < 0.5 else None
                answer = yield from insist(request, (), place)
                if not isinstance(answer.said, wire.Peeked):
                    # A later reader may have acked the number meanwhile, with or without knowing.
                    self._that(self.acking[queue] >= number, f"{number} is lost: {answer.said}")
                    return False
                found += _bodies(answer)
            rows.append((one.partition, tuple(found)))
        before = self.rows.setdefault((queue, number), tuple(rows))
        self._that(before == tuple(rows), f"{number} of {queue} was {before}, is {rows}")
        return True

    # --- the writer -----------------------------------------------------------------------

    def write(self) -> Acts:
        """Write from the first batch that is not known to be published."""
        rng = self.world.rng
        before = max(self.published, default=-1)  # other writers may publish meanwhile
        said = (yield from insist(pipelines.LastPublished("out", APP))).said
        assert isinstance(said, pipelines.LastBatch), said
        last = -1 if said.batch is None else said.batch
        self._that(last >= before, f"{last} is the last, said before")
        for batch in range(last + 1, self.batches):
            winners: list[tuple[int, int, int]] = []
            bodies: set[bytes] = set()
            for part in range(2):
                for attempt in range(1 + (rng.random() < 0.4)):
                    token, staged = yield from self._task(batch, part, attempt)
                    if token:
                        winner, of_winner = (part, attempt, token), staged
                if not token:
                    return  # refused: this writer must stop
                winners.append(winner)
                bodies |= of_winner
            if rng.random() < 0.15:
                yield from insist(pipelines.Abort("out", APP, batch))
                return  # the next writer repeats the batch
            self.wanted.setdefault(batch, []).append(frozenset(bodies))
            done = (yield from insist(pipelines.Publish("out", APP, batch, winners))).said
            if not isinstance(done, pipelines.PublishResult):
                # An earlier writer or an abort came first.
                return
            self.published.add(batch)
            yield Sleeps(rng.randrange(400_000))
        self.finished_writing = True

    def _task(self, batch: int, part: int, attempt: int) -> _Staging:
        """Stage some messages; return (token, staged bodies), with token 0 when refused."""
        rng = self.world.rng
        self.tries += 1
        token = rng.getrandbits(60) + 1
        self.producers += 1
        staged: set[bytes] = set()
        for number in range(rng.randrange(3)):
            bodies = [
                b"out.%d.%d.%d.%d.%d" % (batch, part, self.tries, number, index)
                for index in range(rng.randrange(1, 4))
            ]
            request = pipelines.StageBatch(
                "out", APP, batch, part, attempt, token, self.producers, number, len(bodies)
            )
            payload = wire.encode(wire.Payload(bodies))
            count = self.world.options.partitions
            place = stage.place_of("out", request, count, ordered=False)
            plain = rng.random() < 0.5
            said = (yield from insist(request, (payload,), None if plain else place)).said
            if not isinstance(said, wire.Pushed):
                return 0, set()
            staged.update(bodies)
        close = pipelines.CloseStage("out", APP, batch, part, attempt, token, len(staged))
        said = (yield from insist(close)).said
        return (token if isinstance(said, wire.Done) else 0), staged

    # --- the end --------------------------------------------------------------------------

    def missing(self) -> str:
        """A description of unfinished work, or an empty string."""
        world = self.world
        if not self.finished_writing:
            return "not all batches are published"
        if unserved := settled.not_served(world):
            return unserved
        for machine in world.machines.values():
            if machine.gone:
                continue
            state = machine.node_core.engine.state
            for queue in state.queues.values():
                if queue.messages:
                    return (
                        f"{machine.name} has {queue.ready} ready, {queue.reserved} reserved and "
                        f"{queue.staged} staged messages of {queue.name}"
                    )
            left = [*state.owing, *state.publishing, *state.holds.by_key, *state.orphans]
            left += [key for key, each in state.ledgers.items() if each.sealed]
            if left:
                return f"{machine.name} has {left[:3]} left"
        return ""

    def check(self) -> None:
        for queue in QUEUES:
            read = Counter(
                body
                for (name, number), rows in self.rows.items()
                if name == queue and number <= self.acking[queue]
                for _, bodies in rows
                for body in bodies
            )
            twice = [body for body, times in read.items() if times > 1]
            self._that(not twice, f"{twice[:3]} are in two reservations of {queue}")
            if queue == "in":
                lost = self.pushed["in"] - set(read)
                self._that(not lost, f"{sorted(lost)[:3]} of {queue} were never read")
                self._that(set(read) <= self.pushed["in"], "messages from nowhere")
                continue
            for batch in range(self.batches):
                seen = frozenset(b for b in read if b.startswith(b"out.%d." % batch))
                self._that(
                    seen in self.wanted[batch],
                    f"batch {batch} is {sorted(seen)}, and the winners were "
                    f"{[sorted(each) for each in self.wanted[batch]]}",
                )

    def _that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)


def _bodies(answer: Answer) -> list[bytes]:
    return [body for frame in answer.frames for body in wire.decode_payload(frame).bodies]


class Cast:
    """A role with one actor after another: a dead one is replaced, sometimes before its death."""

    def __init__(self, world: World, part: Callable[[], Acts]) -> None:
        self._world = world
        self._part = part
        self._players: list[Actor] = []
        self._ended = False

    def play(self, until: int) -> None:
        """Start an actor now, and a further one at random intervals until `until`."""
        rng = self._world.rng
        if self._players and rng.random() < 0.6:
            self._players[-1].kill()
        self._players.append(Actor(self._world, self._part()))
        pause = rng.randrange(300_000, 2 * SECOND)
        if self._world.now + pause < until:
            self._world.after(pause, lambda: self.play(until))

    def last(self) -> None:
        """Stop killing; keep one actor running for as long as needed."""
        self.end()
        self._ended = False
        self._again()

    def end(self) -> None:
        self._ended = True
        for player in self._players:
            player.kill()

    def _again(self) -> None:
        if self._ended:
            return
        if not self._players[-1].alive:
            self._players.append(Actor(self._world, self._part()))
        self._world.after(SECOND, self._again)


def _simulate(world: World, pipeline: Pipeline) -> None:
    world.build()
    until(world, lambda: settled.whole(world), 10 * SECOND)
    made = Actor(world, _make())
    until(world, lambda: "the queues are not made" if made.alive else "", 10 * SECOND)
    world.network.network_faults = world.options.network_faults
    end = world.now + _WORK
    casts = [Cast(world, partial(pipeline.read, queue)) for queue in QUEUES]
    casts.append(Cast(world, pipeline.write))
    producer = Actor(world, pipeline.produce())
    for cast in casts:
        cast.play(end)
    faults.schedule(world)
    world.run(end)
    faults.heal(world)
    pipeline.hurry = True
    for cast in casts:
        cast.last()
    until(world, lambda: "not all is pushed" if producer.alive else "", _HEAL_MAX)
    until(world, pipeline.missing, _HEAL_MAX)
    world.run(world.now + SECOND)  # let the last acks take effect
    for cast in casts:
        cast.end()
    pipeline.check()
    until(world, lambda: settled.level(world), _HEAL_MAX)
    settled.states(world)


def _make() -> Acts:
    for queue in QUEUES:
        yield from insist(wire.CreateQueue(queue, Settings()))


def simulate(seed: int, options: Options | None = None) -> World:
    """One run. A second reader or writer takes over at random moments."""
    world = World(seed, options, whole=True)
    world.options = replace(
        world.options, limited=False, dead_letters=False, temporary=False, counters=False,
        updates=False, ordered=False, span_us=_WORK,
    )  # fmt: skip
    pipeline = Pipeline(world)
    try:
        _simulate(world, pipeline)
    except Exception as error:
        tail = "\n".join(world.story[-60:])
        raise AssertionError(
            f"seed {seed}: {error!r}\n{world.options}\nthe last events:\n{tail}\n"
            f"again: python -m tests.sim.pipelines --seed {seed}"
        ) from error
    return world


def try_seed(seed: int) -> tuple[int, str]:
    """The seed and its error, or an empty string."""
    try:
        simulate(seed)
    except AssertionError as error:
        return seed, str(error)
    return seed, ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Pipelines in the simulator.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    asked = parser.parse_args()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        world = simulate(seed)
        print(f"seed {seed}: no violation, {world.events_count} events, digest {world.digest}")


if __name__ == "__main__":
    main()
