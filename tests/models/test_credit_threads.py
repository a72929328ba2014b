"""Paper 2's lock-free protocol under the interleaving explorer, and with real threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from tests.mpsc.choosers import at_random, every_way
from tests.mpsc.explorer import Access, Actor, Choice, Chooser, Hub, Transition
from weft.models.credit_threads import (
    ConcurrentBuckets,
    SharedScheduler,
    SharedTask,
    Variables,
    run_threads,
)

STEPS_MAX = 3000
Program = Callable[[], None]


def explore(chooser: Chooser, make: Callable[[Variables, Hub], Sequence[Program]]) -> Hub:
    """Runs one program per actor, one atomic operation at a time, in the chooser's order."""
    hub = Hub(chooser, STEPS_MAX)
    variables = Variables(lambda number, writes: hub.step((Access(0, number, 1, writes),)))
    programs = make(variables, hub)
    hub.run([
        Actor(at, lambda actor, program=program: program(), enqueues=True)  # type: ignore[misc]
        for at, program in enumerate(programs)
    ])  # fmt: skip
    return hub


# --- III-A: writers and schedulers -----------------------------------------------------------


class Rig:
    """Writers with numbered events for one or two tasks, and two scheduling threads."""

    def __init__(self, kind: type[SharedScheduler], events: Sequence[Sequence[int]]) -> None:
        self.kind = kind
        self.events = events
        self.problems: list[str] = []
        self.finish: Callable[[], object] = list

    def run(self, chooser: Chooser) -> None:
        busy: set[int] = set()
        self.problems = []

        def make(variables: Variables, hub: Hub) -> list[Program]:
            shared = self.kind([1.0, 1.0], variables)
            self.shared = shared

            def process(task: SharedTask, event: object) -> float:
                if task.name in busy:
                    self.problems.append("two schedulers at one task")
                busy.add(task.name)
                variables.hook(-1 - task.name, True)  # processing takes time
                busy.discard(task.name)
                return 0.7

            def writer(number: int) -> Program:
                def write() -> None:
                    for serial, at in enumerate(self.events[number]):
                        shared.write(shared.tasks[at], (number, serial))

                return write

            def scheduler() -> None:
                for _ in range(12):
                    shared.schedule(process)

            self.finish = lambda: [shared.schedule(process) for _ in range(40)]
            return [*(writer(at) for at in range(len(self.events))), scheduler, scheduler]

        explore(chooser, make)
        self.finish()
        self._check()

    def _check(self) -> None:
        for task in self.shared.tasks:
            written = [
                (number, serial)
                for number, events in enumerate(self.events)
                for serial, at in enumerate(events)
                if at == task.name
            ]
            if sorted(task.processed, key=str) != written:
                self.problems.append(f"task {task.name}: {task.processed} of {written}")
            for number in range(len(self.events)):
                own = [event for event in task.processed if event[0] == number]  # type: ignore[index]
                if own != sorted(own, key=str):
                    self.problems.append(f"task {task.name}: {own} is not FIFO")


def problems(kind: type[SharedScheduler], runs: int) -> list[str]:
    rig = Rig(kind, [[0, 0], [0, 1]])
    for seed in range(runs):
        try:
            rig.run(at_random(seed))
        except AssertionError as error:
            return [str(error)]
        if rig.problems:
            return rig.problems
    return []


class CountedFirst(SharedScheduler):
    """Planted: a writer counts its event before the event is in the queue."""

    def write(self, task: SharedTask, event: object) -> None:
        owns = task.size.fetch_add(1) == 0
        if owns:
            self._return(task)
        task.events.put(event)


class DiscountedFirst(SharedScheduler):
    """Planted: a scheduler decrements before it processes."""

    def schedule(self, process: Callable[[SharedTask, object], float]) -> bool:
        seen = self.periods.load()
        task = self.ready.get()
        if task is None:
            return False
        if task.credit <= 0:
            self._reset(task, seen)
            return True
        event = task.events.get()
        assert event is not None, "a task in the set has an event"
        more = task.size.fetch_add(-1) > 1
        if more:
            self._return(task)
        task.credit -= process(task, event)
        task.processed.append(event)
        return True


class LostAtReset(SharedScheduler):
    """Planted: figure 1(b) as printed; the task that revealed the end of the period is dropped."""

    def _reset(self, first: SharedTask, seen: int) -> None:
        self.periods.compare_swap(seen, seen + 1)
        held = []
        while (task := self.ready.get()) is not None:
            held.append(task)
        for task in held:
            self._return(task)


def test_every_event_is_processed_once_in_order_by_one_scheduler_at_a_time() -> None:
    assert problems(SharedScheduler, 400) == []


@pytest.mark.parametrize("kind", [CountedFirst, DiscountedFirst, LostAtReset])
def test_planted_bugs_are_found(kind: type[SharedScheduler]) -> None:
    assert problems(kind, 400) != []


# --- III-C and III-D: what the priority queue promises ---------------------------------------


@dataclass
class Put:
    name: str
    level: int
    start: int
    end: int = -1


@dataclass
class Got:
    put: Put | None
    start: int
    end: int


class History:
    """Puts and gets of one run, with the explorer's times."""

    def __init__(self, hub: Hub, queue: ConcurrentBuckets[Put]) -> None:
        self.hub, self.queue = hub, queue
        self.gets: list[Got] = []
        #: By thread, in program order.
        self.programs: dict[int, list[Put | Got]] = {}
        self._tick = count()

    def now(self) -> int:
        """A count, not the hub's clock: an end and the next start must differ."""
        return next(self._tick)

    def put(self, thread: int, name: str, level: int) -> None:
        made = Put(name, level, self.now())
        self.queue.put(made, level)
        made.end = self.now()
        self.programs.setdefault(thread, []).append(made)

    def get(self, thread: int) -> None:
        start = self.now()
        got = Got(self.queue.get(), start, self.now())
        self.programs.setdefault(thread, []).append(got)
        if got.put is not None:
            self.gets.append(got)

    def inversions(self) -> Iterator[tuple[Got, Got]]:
        """Pairs where a get that ended earlier returned a lower priority."""
        gets = sorted(self.gets, key=lambda got: got.end)
        for at, i in enumerate(gets):
            for j in gets[at + 1 :]:
                assert i.put is not None
                assert j.put is not None
                if i.put.level < j.put.level:
                    yield i, j

    def printed(self) -> bool:
        return all(i.start < j.put.end for i, j in self.inversions() if j.put)

    def corrected(self) -> bool:
        return all(i.start < j.put.end or j.start < i.end for i, j in self.inversions() if j.put)

    def sequentially_consistent(self) -> bool:
        """Whether a priority queue, fed in some order that respects each thread's, explains it."""

        def explains(places: tuple[int, ...], held: tuple[Put, ...]) -> bool:
            if all(at == len(program) for at, program in zip(places, programs, strict=True)):
                return True
            for thread, program in enumerate(programs):
                if places[thread] == len(program):
                    continue
                step = program[places[thread]]
                after = (*places[:thread], places[thread] + 1, *places[thread + 1 :])
                if isinstance(step, Put):
                    if explains(after, (*held, step)):
                        return True
                elif step.put is None:
                    if not held and explains(after, held):
                        return True
                elif step.put in held and step.put.level == max(each.level for each in held):
                    rest = tuple(each for each in held if each is not step.put)
                    if explains(after, rest):
                        return True
            return False

        programs = list(self.programs.values())
        return explains((0,) * len(programs), ())


Steps = Sequence[tuple[str, int] | None]


def history(
    chooser: Chooser,
    threads: Sequence[Steps],
    before: Steps = (),
    kind: type[ConcurrentBuckets[Put]] = ConcurrentBuckets,
) -> History:
    """Runs one program per thread: (name, level) is a put, None a get."""
    made: list[History] = []

    def make(variables: Variables, hub: Hub) -> list[Program]:
        story = History(hub, kind(variables))
        made.append(story)

        def program(thread: int, steps: Steps) -> None:
            for step in steps:
                if step is None:
                    story.get(thread)
                else:
                    story.put(thread, *step)

        program(-1, before)
        return [lambda at=at, steps=steps: program(at, steps) for at, steps in enumerate(threads)]  # type: ignore[misc]

    explore(chooser, make)
    return made[0]


def every_history(threads: Sequence[Steps], before: Steps = ()) -> list[History]:
    found: list[History] = []
    runs = every_way(lambda chooser: found.append(history(chooser, threads, before)), 100_000)
    assert runs is not None, "too many interleavings"
    return found


def test_the_printed_invariant_is_violated_and_the_corrected_one_holds() -> None:
    found = every_history([[None], [None]], before=[("x", 3), ("y", 1)])
    assert any(not story.printed() for story in found)
    assert all(story.corrected() for story in found)


def test_two_threads_are_not_sequentially_consistent() -> None:
    found = every_history([[None], [("x", 3), ("y", 1)]])
    assert any(not story.sequentially_consistent() for story in found)
    assert all(story.corrected() for story in found)


def test_the_corrected_invariant_holds_at_random() -> None:
    threads: list[Steps] = [[("a", 3), None], [("x", 3), None, None], [None, ("b", 0), None]]
    for seed in range(400):
        assert history(at_random(seed), threads, [("y", 1)]).corrected()


class EnqueuedFirst(ConcurrentBuckets[Put]):
    """Planted: a put enqueues before it counts, so that a count may hide a task."""

    def put(self, item: Put, level: int) -> None:
        self._queues[level].put(item)
        self._counts[level].fetch_add(1)
        self._groups[level // self._group].fetch_add(1)


class Script:
    """A chooser that follows a list of actors."""

    def __init__(self, *turns: tuple[int, int]) -> None:
        self._left = [actor for actor, steps in turns for _ in range(steps)]

    def choose(self, hub: Hub, choices: list[Choice]) -> Choice | None:
        return Choice(self._left.pop(0)) if self._left else choices[0]

    def made(self, transition: Transition) -> None:
        """Nothing to learn."""


def test_counting_after_the_enqueue_breaks_the_corrected_invariant() -> None:
    """The uncounted `a` is taken in place of `x`, whose count falls to 0: a get passes over x."""
    threads: list[Steps] = [[("a", 3)], [("x", 3), None, None], [None]]
    script = ((0, 1), (1, 3), (2, 5), (1, 6), (0, 2))
    broken = history(Script(*script), threads, [("y", 1)], EnqueuedFirst)
    assert [got.put.name for got in broken.gets if got.put] == ["a", "y", "x"]
    assert not broken.corrected()
    assert history(Script(*script), threads, [("y", 1)]).corrected()


# --- IV-C: two schedulers --------------------------------------------------------------------


def test_real_threads_lose_and_reorder_nothing() -> None:
    run = run_threads([0.5, 0.3, 0.2], schedulers=2, events=60, cost_s=0.0005, seconds=60.0)
    assert run.lost == 0
    assert run.out_of_order == 0
    assert run.processed == (60, 60, 60)
