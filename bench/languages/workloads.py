"""The workloads: what a client program does, the systems that take part, and the figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bench.peers.workloads import Column

from . import entrants

#: Bytes of a message, and messages of a batch, as in `bench.peers`.
SIZE: Final = 128
BATCH: Final = 1000
IN_FLIGHT: Final = 32

_CPU: Final = (
    Column("server_cpu_us", "server CPU, µs each", 1),
    Column("client_cpu_us", "client CPU, µs each", 1),
    Column("other_cores", "other load, cores", 2),
)
_LATENCY: Final = (Column("p50_us", "push p50, µs"), Column("p99_us", "push p99, µs"))
_SINGLE: Final = (
    Column("rate", "completed/s"), Column("calls", "calls/s"), *_LATENCY, *_CPU
)  # fmt: skip
_MESSAGES: Final = (Column("rate", "messages/s"), *_CPU)


@dataclass(frozen=True)
class LanguageWorkload:
    name: str
    title: str
    columns: tuple[Column, ...]
    entrants: tuple[str, ...]
    #: Fields of the task, beside the address and the time.
    task: dict[str, Any] = field(default_factory=dict)


def _of_languages(*languages: str) -> tuple[str, ...]:
    return tuple(f"{weft}-{language}" for weft in entrants.WEFT for language in languages)


def _all() -> list[LanguageWorkload]:
    single = {"workload": "single", "size": SIZE, "batch": 1}
    batch = {"size": SIZE, "batch": BATCH, "in_flight": 1}
    empty = {"workload": "empty", "in_flight": IN_FLIGHT, "size": 0, "batch": 1}
    empty_columns = (Column("rate", "calls/s"), Column("p50_us", "p50, µs"), *_CPU)
    return [
        LanguageWorkload(
            "single-1", "one message at a time: push, pop, ack", _SINGLE,
            (*entrants.GO, *_of_languages("node", "java")), {**single, "in_flight": 1},
        ),
        LanguageWorkload(
            "python", "the Python client, one message at a time", _LATENCY,
            _of_languages("python"), single,
        ),
        LanguageWorkload(
            "single-32", "32 callers: each pushes, pops and acks one message at a time", _SINGLE,
            (*entrants.GO, *_of_languages("node", "java")), {**single, "in_flight": IN_FLIGHT},
        ),
        LanguageWorkload(
            "batch", "batches of 1,000: pushed, popped and acked at the same time", _MESSAGES,
            entrants.GO, {**batch, "workload": "batch"},
        ),
        LanguageWorkload(
            "health", "an empty call: health Check, 32 callers", empty_columns,
            (*entrants.WEFT, "go-grpc"), {**empty, "method": "health"},
        ),
        LanguageWorkload(
            "view", "an empty call: Cluster.View, 32 callers", empty_columns,
            (*entrants.WEFT, "go-grpc"), {**empty, "method": "view"},
        ),
        LanguageWorkload(
            "columns", "batches of 1,000 by column: pushed, popped and acked", _MESSAGES,
            entrants.WEFT, {**batch, "workload": "columns"},
        ),
        LanguageWorkload(
            "produce", "single messages on one Produce stream", _MESSAGES,
            entrants.WEFT, {**batch, "workload": "produce"},
        ),
        LanguageWorkload(
            "produce-named", "the same, and each message has a name, for a repetition", _MESSAGES,
            entrants.WEFT, {**batch, "workload": "produce", "named": True},
        ),
        LanguageWorkload(
            "work", "single messages on one Work stream, each acked", _MESSAGES,
            entrants.WEFT, {**batch, "workload": "work"},
        ),
    ]  # fmt: skip


ALL: Final = tuple(_all())
BY_NAME: Final = {each.name: each for each in ALL}
