"""Runs the real queue code under every requested interleaving.

Each rank is an actor, a greenlet that runs unchanged queue code over an :class:`ExplorerWindow`.
Every primitive of the window is one step: before it, the actor hands control to the hub, which lets
a *chooser* pick the next actor. A put or get takes effect when the chooser picks it, at the latest
in the flush that follows: exactly the freedom that the window's promises allow.

A call begins with its first step and ends with its last, the tightest possible times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from weft.errors import RankLost
from weft.mpsc import Counts, Segments
from weft.mpsc.window import words_of


@dataclass(frozen=True, slots=True)
class Access:
    """Words that a step touches."""

    target: int
    word: int
    count: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        return (
            (self.writes or other.writes)
            and self.target == other.target
            and self.word < other.word + other.count
            and other.word < self.word + self.count
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The next step of an actor, or the late delivery of one of its puts and gets."""

    actor: int
    delivery: int = -1


@dataclass(slots=True)
class Transition:
    """A completed step: its accesses, and whether calls began or ended with it."""

    actor: int
    accesses: tuple[Access, ...]
    began: bool = False
    ended: bool = False

    def depends(self, other: Transition) -> bool:
        if self.actor == other.actor:
            return True
        # Linearizability depends on the order of an end and a beginning.
        if (self.ended and other.began) or (self.began and other.ended):
            return True
        return any(mine.conflicts(its) for mine in self.accesses for its in other.accesses)


@dataclass(slots=True)
class Late:
    """A put or get that has not taken effect."""

    serial: int
    access: Access
    apply: Callable[[], None]


class Times(Protocol):
    """A call in a history."""

    began: float
    ended: float


class Chooser(Protocol):
    def choose(self, hub: Hub, choices: list[Choice]) -> Choice | None:
        """One of the choices; None ends the run."""
        ...

    def made(self, transition: Transition) -> None:
        """The chosen step was made."""
        ...


@dataclass
class Actor:
    """One running rank."""

    index: int
    run: Callable[[Actor], None]
    enqueues: bool
    #: The actor dies instead of making this step of its own (the first is 0); None: it lives.
    dies_at: int | None = None
    steps: int = 0
    call_steps: int = 0
    steps_max: int = 0
    next: tuple[Access, ...] = ()
    flushing: int | None = None
    times: Times | None = None
    paused: bool = False
    saw_written: int = -1
    over: bool = False
    late: list[Late] = field(default_factory=list)
    error: BaseException | None = None
    fiber: greenlet | None = None


class Hub:
    """Lets actors make one step at a time."""

    def __init__(self, chooser: Chooser, steps_max: int) -> None:
        self.clock = 0
        self.actors: list[Actor] = []
        #: True if actors wait for a step that never comes.
        self.blocked = False
        self.cut = False
        self._chooser = chooser
        self._steps_max = steps_max
        self._serial = 0
        #: How often dequeuer and enqueuers have written.
        self._written = {False: 0, True: 0}
        self._current: Actor | None = None
        self._transition = Transition(-1, ())
        self._home = getcurrent()

    def run(self, actors: Sequence[Actor]) -> None:
        self.actors = list(actors)
        for actor in actors:
            actor.fiber = greenlet(self._body(actor), parent=self._home)
            self._resume(actor)
        while choices := self._choices():
            choice = self._chooser.choose(self, choices) if self.clock < self._steps_max else None
            if choice is None:
                self.cut = True
                break
            self._make(choice)
            if self.actors[choice.actor].error is not None:
                break
        self.blocked = any(actor.paused and not actor.over for actor in self.actors)
        self._end()

    def step(self, accesses: tuple[Access, ...], flushing: int | None = None) -> None:
        """Called by a window before it acts: wait for this actor's turn."""
        actor = self._current
        if actor is None:
            return
        actor.next, actor.flushing = accesses, flushing
        self._home.switch()
        actor.flushing = None
        if actor.call_steps == 0 and actor.times is not None:
            actor.times.began = float(self.clock)
            self._transition.began = True
        actor.call_steps += 1

    def later(self, access: Access, apply: Callable[[], None]) -> None:
        actor = self._current
        if actor is None:
            apply()
            return
        self._serial += 1
        actor.late.append(Late(self._serial, access, apply))

    def flush(self, target: int, lost: Callable[[int], bool]) -> bool:
        """Complete the late operations at this target.

        False: the operations are dropped, because the target's memory is lost by now.
        """
        actor = self._current
        if actor is None:
            return True
        due = tuple(late.access for late in actor.late if late.access.target == target)
        if not due:
            return True
        self.step(due, flushing=target)
        dropped = lost(target)
        for late in [late for late in actor.late if late.access.target == target]:
            if dropped:
                actor.late.remove(late)
            else:
                self._deliver(actor, late)
        return not dropped

    def pause(self) -> None:
        """Called by a blocking algorithm between two polls: wait until the other side writes.

        The call does not wait if the other side has written since the last pause: then another poll
        may help.
        """
        actor = self._current
        assert actor is not None
        written = self._written[not actor.enqueues]
        actor.paused = written == actor.saw_written
        actor.saw_written = written

    def call(self, actor: Actor, times: Times, body: Callable[[], None]) -> None:
        """Run one queue operation of the actor and record when it began and ended."""
        actor.times, actor.call_steps = times, 0
        body()
        if actor.call_steps == 0:
            # No step at all: the call happens between this step and the next one.
            times.began = self.clock + 0.5
            self._transition.began = True
        times.ended = max(times.began, float(self.clock))
        self._transition.ended = True
        actor.steps_max = max(actor.steps_max, actor.call_steps)
        actor.times = None

    def _choices(self) -> list[Choice]:
        choices = []
        for actor in self.actors:
            if not actor.over and not actor.paused and actor.steps != actor.dies_at:
                choices.append(Choice(actor.index))
            for late in actor.late:
                # When its flush is next, delivering it early is the same as flushing.
                if actor.over or actor.flushing != late.access.target:
                    choices.append(Choice(actor.index, late.serial))
        if all(actor.over or actor.paused or actor.steps == actor.dies_at for actor in self.actors):
            return []
        return choices

    def _make(self, choice: Choice) -> None:
        actor = self.actors[choice.actor]
        self.clock += 1
        if choice.delivery >= 0:
            late = next(late for late in actor.late if late.serial == choice.delivery)
            self._transition = Transition(actor.index, (late.access,))
            self._deliver(actor, late)
        else:
            actor.steps += 1
            self._transition = Transition(actor.index, actor.next)
            self._resume(actor)
        if any(access.writes for access in self._transition.accesses):
            self._written[actor.enqueues] += 1
            for other in self.actors:
                if other.paused and other.enqueues != actor.enqueues:
                    other.paused = False
        self._chooser.made(self._transition)

    def _resume(self, actor: Actor) -> None:
        self._current = actor
        assert actor.fiber is not None
        actor.fiber.switch()
        self._current = None

    def _body(self, actor: Actor) -> Callable[[], None]:
        def body() -> None:
            try:
                actor.run(actor)
            except GreenletExit:
                raise
            except BaseException as error:
                actor.error = error
            actor.over = True

        return body

    @staticmethod
    def _deliver(actor: Actor, late: Late) -> None:
        actor.late.remove(late)
        late.apply()

    def _end(self) -> None:
        for actor in self.actors:
            if actor.fiber is not None and not actor.fiber.dead:
                self._current = actor
                actor.fiber.throw(GreenletExit)
        self._current = None
        for actor in self.actors:
            if actor.error is not None:
                raise actor.error


class ExplorerWindow:
    """One actor's view of the memory: every primitive asks the hub first."""

    def __init__(self, hub: Hub, segments: Segments, rank: int) -> None:
        self._hub = hub
        self._segments = segments
        self._words = segments.words
        self.rank = rank
        self.counts = Counts()
        #: Ranks that share no memory with this one, as between machines: their memory is lost if
        #: they die.
        self.remote: frozenset[int] = frozenset()
        self.is_dead: Callable[[int], bool] = lambda rank: False

    def outlives(self, target: int) -> bool:
        return target not in self.remote

    def load(self, target: int, word: int) -> int:
        self._step(target, word, writes=False)
        return self._words[target][word]

    def load_range(self, target: int, word: int, count: int) -> list[int]:
        return [self.load(target, word + at) for at in range(count)]

    def store(self, target: int, word: int, value: int) -> None:
        self._step(target, word, writes=True)
        self._words[target][word] = value

    def fetch_add(self, target: int, word: int, delta: int) -> int:
        self._step(target, word, writes=True)
        before = self._words[target][word]
        self._words[target][word] = before + delta
        return before

    def compare_swap(self, target: int, word: int, expected: int, desired: int) -> int:
        self._step(target, word, writes=True)
        before = self._words[target][word]
        if before == expected:
            self._words[target][word] = desired
        return before

    def put(self, target: int, word: int, data: bytes) -> None:
        self._count(target)
        access = Access(target, word, words_of(len(data)), writes=True)
        self._hub.later(access, lambda: self._segments.write(target, word, data))

    def get(self, target: int, word: int, size: int) -> bytearray:
        into = bytearray(size)
        self.get_into(target, word, memoryview(into))
        return into

    def get_into(self, target: int, word: int, into: memoryview) -> None:
        self._count(target)
        size = into.nbytes

        def read() -> None:
            into.cast("B")[:] = self._segments.read(target, word, size)

        self._hub.later(Access(target, word, words_of(size), writes=False), read)

    def flush(self, target: int) -> None:
        if not self._hub.flush(target, self._lost):
            raise RankLost(f"rank {target} is dead", target)

    def _step(self, target: int, word: int, writes: bool) -> None:
        self._count(target)
        self._hub.step((Access(target, word, 1, writes),))
        if self._lost(target):
            raise RankLost(f"rank {target} is dead", target)

    def _lost(self, target: int) -> bool:
        return target in self.remote and self.is_dead(target)

    def _count(self, target: int) -> None:
        if target == self.rank:
            self.counts.local += 1
        else:
            self.counts.remote += 1
