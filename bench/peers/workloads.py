"""The workloads W1 to W9, and one setup from a paper. Every workload is the same on every system.

The message count of a throughput workload is chosen per system, so that every measurement takes
about the same time; a fixed count would be too short for a fast system and take hours on a slow
one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

from weft.client.cli.bench.latency import Percentiles

from .arena import Arena
from .plan import Plan
from .session import Flow
from .systems import FANNING, REPLICATED, SINGLE, System
from .workers import Outcome

MIB: Final = 1024 * 1024
#: Maximum bytes of one measurement: Redis holds them in memory, and disks write them repeatedly.
BYTES_MAX: Final = 1024 * MIB


@dataclass(frozen=True)
class Column:
    """One column of the tables."""

    figure: str
    title: str
    digits: int = 0


@dataclass(frozen=True)
class Taken:
    figures: dict[str, float]
    samples: dict[str, list[float]]


CPU_COLUMNS: Final = (
    Column("server_cpu_us", "server CPU, µs/message", 2),
    Column("client_cpu_us", "clients' CPU, µs/message", 2),
    Column("other_cores", "other load, cores", 2),
)


class Workload(ABC):
    name: ClassVar[str]
    title: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    systems: ClassVar[tuple[str, ...]] = SINGLE

    @abstractmethod
    def measure(self, arena: Arena, plan: Plan, system: System) -> Taken: ...


def costs(outcome: Outcome, count: int) -> dict[str, float]:
    return {
        "server_cpu_us": outcome.server_cpu_s / count * 1e6,
        "client_cpu_us": outcome.client_cpu_s / count * 1e6,
        "other_cores": outcome.other_cores,
    }


class Through(Workload):
    """Producers and one consumer run concurrently; every message is delivered and acknowledged."""

    columns = (Column("rate", "messages/s"), *CPU_COLUMNS)
    size: ClassVar[int] = 128
    producers: ClassVar[int] = 1
    #: Messages to one queue before the next queue's turn.
    visit: ClassVar[int] = 1000

    def queue_count(self, plan: Plan) -> int:
        return 1

    def measure(self, arena: Arena, plan: Plan, system: System) -> Taken:
        def through(count: int) -> Outcome:
            share = max(1, count // self.producers)
            with arena.queues(system, self.queue_count(plan)) as queues:
                sends = Flow(queues, share, self.size, self.visit)
                takes = Flow(queues, share * self.producers, self.size, self.visit)
                roles = [("produce", sends)] * self.producers + [("consume", takes)]
                return arena.work(system, roles)

        key = (self.name, system.name, self.size)
        most = BYTES_MAX // self.size
        count = arena.count_for(key, plan.seconds, most, lambda some: through(some).seconds)
        outcome = through(count)
        done = max(1, count // self.producers) * self.producers
        return Taken({"rate": done / outcome.seconds, **costs(outcome, done)}, {})


class W1(Through):
    name = "W1"
    title = "128-byte messages, one producer and one consumer, delivered and acknowledged"


class W5(Through):
    name = "W5"
    title = "128-byte messages, four producers and one consumer, delivered and acknowledged"
    producers = 4


class W6(Through):
    name = "W6"
    title = "W1 on three nodes, replicated"
    systems = REPLICATED


class W8(Through):
    name = "W8"
    title = "W1 over a thousand queues: a batch of 1,000 to one, then to the next"

    def queue_count(self, plan: Plan) -> int:
        return plan.queues


class W8b(W8):
    """Short runs per queue: the cost of a thousand queues that fill slowly."""

    name = "W8b"
    title = "W8 with 100 messages to one queue and then the next"
    visit = 100


class W9(Workload):
    """Fan-out: one producer, and one consumer of all queues."""

    name = "W9"
    title = "128-byte messages, each to ten queues, delivered and acknowledged in each of them"
    columns = (Column("rate", "messages delivered/s"), *CPU_COLUMNS)
    systems = FANNING
    size: ClassVar[int] = 128
    queues: ClassVar[int] = 10

    def measure(self, arena: Arena, plan: Plan, system: System) -> Taken:
        def through(count: int) -> Outcome:
            with arena.queues(system, self.queues, fan_out=True) as queues:
                sends = Flow(queues, count, self.size, fan_out=True)
                takes = Flow(queues, count * self.queues, self.size, fan_out=True)
                return arena.work(system, [("produce", sends), ("consume", takes)])

        key = (self.name, system.name, self.size)
        most = BYTES_MAX // self.size // self.queues
        count = arena.count_for(key, plan.seconds, most, lambda some: through(some).seconds)
        outcome = through(count)
        delivered = count * self.queues
        return Taken({"rate": delivered / outcome.seconds, **costs(outcome, delivered)}, {})


class InTurn(Workload):
    """First all pushes, then all pops."""

    def push_then_pop(
        self, arena: Arena, system: System, size: int, count: int
    ) -> tuple[Outcome, Outcome]:
        with arena.queues(system) as queues:
            flow = Flow(queues, count, size)
            pushed = arena.work(system, [("produce", flow)])
            return pushed, arena.work(system, [("consume", flow)])

    def count(self, arena: Arena, plan: Plan, system: System, size: int) -> int:
        def trial(some: int) -> float:
            pushed, popped = self.push_then_pop(arena, system, size, some)
            return (pushed.seconds + popped.seconds) / 2

        key = (self.name, system.name, size)
        return arena.count_for(key, plan.seconds / 2, BYTES_MAX // size, trial)


class W2(InTurn):
    name = "W2"
    title = "50-byte messages: push only, then pop (and acknowledge) only"
    columns = (
        Column("push_rate", "pushed/s"),
        Column("pop_rate", "popped/s"),
        *CPU_COLUMNS,
    )

    def measure(self, arena: Arena, plan: Plan, system: System) -> Taken:
        count = self.count(arena, plan, system, 50)
        pushed, popped = self.push_then_pop(arena, system, 50, count)
        both = Outcome(
            pushed.seconds + popped.seconds,
            pushed.server_cpu_s + popped.server_cpu_s,
            pushed.client_cpu_s + popped.client_cpu_s,
            max(pushed.other_cores, popped.other_cores),
            popped.rss_bytes,
            [],
        )
        rates = {"push_rate": count / pushed.seconds, "pop_rate": count / popped.seconds}
        return Taken({**rates, **costs(both, count)}, {})


class W4(InTurn):
    name = "W4"
    title = "256 KiB and 1 MiB messages: push only, then pop (and acknowledge) only"
    sizes: ClassVar[dict[str, int]] = {"256k": MIB // 4, "1m": MIB}
    columns = (
        Column("push_mib_256k", "256 KiB pushed, MiB/s"),
        Column("pop_mib_256k", "256 KiB popped, MiB/s"),
        Column("push_mib_1m", "1 MiB pushed, MiB/s"),
        Column("pop_mib_1m", "1 MiB popped, MiB/s"),
        Column("other_cores", "other load, cores", 2),
    )

    def measure(self, arena: Arena, plan: Plan, system: System) -> Taken:
        figures: dict[str, float] = {}
        for word, size in self.sizes.items():
            count = self.count(arena, plan, system, size)
            pushed, popped = self.push_then_pop(arena, system, size, count)
            figures[f"push_mib_{word}"] = count * size / MIB / pushed.seconds
            figures[f"pop_mib_{word}"] = count * size / MIB / popped.seconds
            load = max(pushed.other_cores, popped.other_cores)
            figures["other_cores"] = max(figures.get("other_cores", 0.0), load)
        return Taken(figures, {})


class Calls(Workload):
    """One synchronous caller, one call at a time."""

    size: ClassVar[int] = 128

    def samples(self, plan: Plan) -> int:
        return plan.samples

    def measure(self, arena: Arena, plan: Plan, system: System) -> Taken:
        with arena.queues(system) as queues:
            flow = Flow(queues, self.samples(plan), self.size)
            outcome = arena.work(system, [("call", flow)])
        (said,) = outcome.said
        figures: dict[str, float] = {"other_cores": outcome.other_cores}
        samples: dict[str, list[float]] = {}
        for what in ("push", "pop_ack"):
            taken: list[float] = said[f"{what}_us"]
            samples[what] = taken
            ranks = Percentiles.of(taken)
            for rank, value in zip(
                ("p50", "p90", "p99", "p99.9"),
                (ranks.p50, ranks.p90, ranks.p99, ranks.p99_9),
                strict=True,
            ):
                figures[f"{what}_{rank}_us"] = value
            figures[f"{what}_rate"] = 1e6 * len(taken) / sum(taken)
        return Taken(figures, samples)


class W3(Calls):
    name = "W3"
    title = "latency of one synchronous caller, 128 bytes, µs"
    columns = (
        *(Column(f"push_{rank}_us", f"push {rank}") for rank in ("p50", "p90", "p99", "p99.9")),
        *(
            Column(f"pop_ack_{rank}_us", f"pop and ack {rank}")
            for rank in ("p50", "p90", "p99", "p99.9")
        ),
        Column("other_cores", "other load, cores", 2),
    )


class P1(Calls):
    """Fabriq's setup for short messages: a client sends, then receives, 1,000 of 50 bytes."""

    name = "P1"
    title = "Fabriq's setup: 1,000 messages of 50 bytes, one call at a time"
    size = 50
    columns = (
        Column("push_rate", "pushes/s"),
        Column("pop_ack_rate", "pops with ack/s"),
        Column("push_p50_us", "push p50, µs"),
        Column("push_p90_us", "push p90, µs"),
        Column("push_p99.9_us", "push p99.9, µs"),
        Column("other_cores", "other load, cores", 2),
    )

    def samples(self, plan: Plan) -> int:
        return min(plan.samples, 1000)


class W7(Workload):
    name = "W7"
    title = "a deep queue of 128-byte messages, drained"
    columns = (
        Column("depth", "waiting messages"),
        Column("fill_rate", "filled/s"),
        Column("rate", "drained/s"),
        Column("rss_mib", "server memory when full, MiB"),
        Column("server_cpu_us", "server CPU of the drain, µs/message", 2),
        Column("other_cores", "other load, cores", 2),
    )
    size: ClassVar[int] = 128

    def measure(self, arena: Arena, plan: Plan, system: System) -> Taken:
        def both(count: int) -> tuple[Outcome, Outcome]:
            with arena.queues(system) as queues:
                flow = Flow(queues, count, self.size)
                filled = arena.work(system, [("produce", flow)])
                return filled, arena.work(system, [("consume", flow)])

        def trial(count: int) -> float:
            return max(outcome.seconds for outcome in both(count))

        depth = arena.count_for((self.name, system.name, self.size), plan.fill_s, plan.deep, trial)
        filled, drained = both(depth)
        figures = {
            "depth": float(depth),
            "fill_rate": depth / filled.seconds,
            "rate": depth / drained.seconds,
            "rss_mib": filled.rss_bytes / MIB,
        }
        return Taken({**figures, **costs(drained, depth)}, {})


ALL: Final[tuple[Workload, ...]] = (
    W1(), W2(), W3(), W4(), W5(), W6(), W7(), W8(), W8b(), W9(), P1(),
)  # fmt: skip
BY_NAME: Final = {workload.name: workload for workload in ALL}
