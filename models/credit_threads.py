"""Paper 2, section III: the lock-free protocol between writers and scheduling threads, as a model.

Weft's nodes handle requests in one thread and need no such protocol; the model shows what the paper
claims for several. Threads share atomic counters and linearizable FIFO queues (III-A takes Michael
and Scott's), and nothing else. Every atomic operation calls a hook first: the tests' explorer runs
the code under every interleaving of these operations, `run_threads` runs it with real threads.

Corrections of the print:

- III-A, order: a writer puts the event, *then* increments the task's counter, and owns the task iff
  the counter was 0; a scheduler processes the event, *then* decrements, and keeps the task iff the
  counter was above 1. The owner alone touches the task's credit and puts the task into the set.
- III-B says nothing about the order of a bucket's counter and its queue. A put must count first and
  enqueue then, a get dequeue first and count then: a counter never falls below the number of queued
  tasks. In the other order a get can take an uncounted task, discount another, and hide it: the
  invariant below is violated even by a thread that puts a task and gets one of lower priority.
- III-D, invariant: as printed, for gets i and j in the order of their ends, `prio_i < prio_j =>
  i.start < j.put.end`, legal runs violate it: get j takes the better task first and ends last.
  Correct is `... or j.start < i.end`.
- III-D, "always sequentially consistent": false. While a get of thread A scans, thread B puts x
  above the scan's position and then y below; A returns y. B put x before y, so no sequential order
  lets a get return y while x stays: two threads, three operations.
- Reset: debt is carried over, and one thread alone ends a period (a compare-and-swap): two threads
  that notice the end together would renew twice.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from weft.credit_buckets import renewed

T = TypeVar("T")

#: Called before each atomic operation: the number of the variable, and whether it is written.
Hook = Callable[[int, bool], None]
#: Of the model: enough levels to tell priorities apart, few enough to explore.
BUCKETS: Final = 4
GROUP: Final = 2
#: A scheduling thread without work looks again after this time.
IDLE_S: Final = 0.0002


class Variables:
    """Makes atomic variables that share one hook, and numbers them."""

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook or (lambda number, writes: None)
        self._made = 0

    def number(self) -> int:
        self._made += 1
        return self._made


class AtomicCounter:
    """An integer with atomic operations."""

    def __init__(self, variables: Variables, value: int = 0) -> None:
        self._hook, self._number = variables.hook, variables.number()
        self._value = value
        self._lock = threading.Lock()

    def load(self) -> int:
        self._hook(self._number, False)
        return self._value

    def fetch_add(self, delta: int) -> int:
        self._hook(self._number, True)
        with self._lock:
            before = self._value
            self._value = before + delta
        return before

    def compare_swap(self, expected: int, desired: int) -> bool:
        self._hook(self._number, True)
        with self._lock:
            if self._value != expected:
                return False
            self._value = desired
        return True


class LinearizableFifo(Generic[T]):
    """A queue with a put and a get that are single atomic steps."""

    def __init__(self, variables: Variables) -> None:
        self._hook, self._number = variables.hook, variables.number()
        self._items: deque[T] = deque()

    def put(self, item: T) -> None:
        self._hook(self._number, True)
        self._items.append(item)

    def get(self) -> T | None:
        self._hook(self._number, True)
        try:
            return self._items.popleft()
        except IndexError:
            return None


class ConcurrentBuckets(Generic[T]):
    """III-B: the lock-free priority queue; level 0 is the lowest priority."""

    def __init__(self, variables: Variables, buckets: int = BUCKETS, group: int = GROUP) -> None:
        self._group = group
        self._queues: list[LinearizableFifo[T]] = [
            LinearizableFifo(variables) for _ in range(buckets)
        ]
        self._counts = [AtomicCounter(variables) for _ in range(buckets)]
        self._groups = [AtomicCounter(variables) for _ in range(buckets // group)]

    def put(self, item: T, level: int) -> None:
        self._groups[level // self._group].fetch_add(1)
        self._counts[level].fetch_add(1)
        self._queues[level].put(item)

    def get(self) -> T | None:
        """A task of the highest level that the scan finds; None if it finds none."""
        for group in reversed(range(len(self._groups))):
            if self._groups[group].load() <= 0:
                continue
            first = group * self._group
            for level in reversed(range(first, first + self._group)):
                if self._counts[level].load() <= 0:
                    continue
                item = self._queues[level].get()
                if item is not None:
                    self._counts[level].fetch_add(-1)
                    self._groups[group].fetch_add(-1)
                    return item
        return None


@dataclass(eq=False)
class SharedTask:
    """A task: its events, their number, and the credit, which only the task's owner touches."""

    name: int
    quantum: float
    events: LinearizableFifo[object]
    size: AtomicCounter
    credit: float = 0.0
    generation: int = 0
    processed: list[object] = field(default_factory=list)
    served: float = 0.0

    def renew(self, generation: int) -> None:
        if generation > self.generation:
            self.credit = renewed(self.credit, self.quantum, generation - self.generation)
            self.generation = generation


class SharedScheduler:
    """The set of schedulable tasks, with the operations of writers and scheduling threads."""

    def __init__(
        self, quanta: Sequence[float], variables: Variables, buckets: int = BUCKETS
    ) -> None:
        self.ready: ConcurrentBuckets[SharedTask] = ConcurrentBuckets(variables, buckets)
        self.periods = AtomicCounter(variables)
        self.tasks = [
            SharedTask(at, quantum, LinearizableFifo(variables), AtomicCounter(variables), quantum)
            for at, quantum in enumerate(quanta)
        ]
        self._top = buckets - 1
        self._width = sum(quanta) / self._top

    def write(self, task: SharedTask, event: object) -> None:
        """A writer: put, then count; the writer that finds 0 owns the task."""
        task.events.put(event)
        if task.size.fetch_add(1) == 0:
            self._return(task)

    def schedule(self, process: Callable[[SharedTask, object], float]) -> bool:
        """One round of figure 1(b), corrected; False if no task was found."""
        seen = self.periods.load()
        task = self.ready.get()
        if task is None:
            return False
        if task.credit <= 0:
            self._reset(task, seen)
            return True
        event = task.events.get()
        assert event is not None, "a task in the set has an event"
        cost = process(task, event)
        task.credit -= cost
        task.served += cost
        task.processed.append(event)
        if task.size.fetch_add(-1) > 1:
            self._return(task)
        return True

    def _return(self, task: SharedTask) -> None:
        task.renew(self.periods.load())
        self.ready.put(task, self._level(task.credit))

    def _level(self, credit: float) -> int:
        return 0 if credit <= 0 else min(self._top, math.ceil(credit / self._width))

    def _reset(self, first: SharedTask, seen: int) -> None:
        """The best task has no credit: a new period, unless another thread began one already."""
        self.periods.compare_swap(seen, seen + 1)
        held = [first]
        while (task := self.ready.get()) is not None:
            held.append(task)
        for task in held:
            self._return(task)


@dataclass(frozen=True, slots=True)
class ThreadsRun:
    """A run with real threads: seconds served per task, events lost or out of order."""

    served_s: tuple[float, ...]
    processed: tuple[int, ...]
    lost: int
    out_of_order: int
    elapsed_s: float

    @property
    def parts(self) -> tuple[float, ...]:
        total = sum(self.served_s) or 1.0
        return tuple(each / total for each in self.served_s)


def run_threads(
    shares: Sequence[float],
    *,
    schedulers: int = 2,
    events: int = 200,
    cost_s: float = 0.001,
    period_s: float = 0.010,
    seconds: float = 1.0,
) -> ThreadsRun:
    """Section IV-C with real threads: one writer per task, saturated, and some schedulers.

    An item sleeps for its cost, so that schedulers overlap under Python's interpreter lock. The run
    ends after `seconds`, or when every event is processed.
    """
    total = sum(shares)
    quanta = [period_s * share / total for share in shares]
    shared = SharedScheduler(quanta, Variables(), buckets=100)
    end = time.monotonic() + seconds
    failures: list[BaseException] = []

    def writer(task: SharedTask) -> None:
        for number in range(events):
            shared.write(task, number)

    def process(task: SharedTask, event: object) -> float:
        before = time.monotonic()
        time.sleep(cost_s)
        return time.monotonic() - before

    def scheduler() -> None:
        try:
            while time.monotonic() < end:
                if not shared.schedule(process):
                    if all(len(task.processed) == events for task in shared.tasks):
                        return
                    time.sleep(IDLE_S)
        except BaseException as error:
            failures.append(error)

    began = time.monotonic()
    threads = [threading.Thread(target=writer, args=(task,)) for task in shared.tasks]
    threads += [threading.Thread(target=scheduler) for _ in range(schedulers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    left = [task.size.load() for task in shared.tasks]
    return ThreadsRun(
        served_s=tuple(task.served for task in shared.tasks),
        processed=tuple(len(task.processed) for task in shared.tasks),
        lost=sum(
            events - len(task.processed) - rest
            for task, rest in zip(shared.tasks, left, strict=True)
        ),
        out_of_order=sum(
            task.processed != list(range(len(task.processed))) for task in shared.tasks
        ),
        elapsed_s=time.monotonic() - began,
    )
