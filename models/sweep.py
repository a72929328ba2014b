"""A grid of parameters -> rows of results, in a process pool. `sweep_spark` does it with Spark.

A sweep names a model and, for some of its parameters, several values. Every combination is a
configuration, and `repeat` runs of a configuration differ in their seed. A row is one run: its
parameters, its seed, its results. The seed is a function of the row's number alone, so rows depend
neither on the process that computes them nor on the order: a pool of any size and Spark give equal
rows.
`summary` reduces the runs of a configuration to means and standard deviations.
"""

from __future__ import annotations

import math
import multiprocessing
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Final

from weft.errors import InvalidArgument

from . import convoy, fabriq, johnson, johnson_sim, shares, skeen

Value = int | float | str
Row = dict[str, Value]

#: Rows of one sweep: more belong into several, for the rows of a sweep are held in memory.
ROWS_MAX: Final = 1_000_000
#: Columns that every row has, before the parameters.
KEYS: Final[dict[str, type]] = {"row": int, "configuration": int, "seed": int}


@dataclass(frozen=True, slots=True)
class SweptModel:
    """A model: its parameters with their defaults, its results, and the function between them."""

    parameters: Mapping[str, Value]
    results: tuple[str, ...]
    run: Callable[[Row], dict[str, float]]

    @property
    def columns(self) -> dict[str, type]:
        """Every column of a row, with its type."""
        typed = {name: type(value) for name, value in self.parameters.items()}
        return {**KEYS, **typed, **dict.fromkeys(self.results, float)}

    @property
    def summary_columns(self) -> dict[str, type]:
        typed = {name: type(value) for name, value in self.parameters.items()}
        means = {f"{name}{end}": float for name in self.results for end in ("", "_deviation")}
        return {"configuration": int, **typed, "runs": int, **means}


def _queue(row: Row) -> dict[str, float]:
    producers, load = int(row["producers"]), float(row["load"])
    johnson.positive("load", load)
    model = johnson.homogeneous(
        producers,
        max(1, round(load * producers)),
        buffers=int(row["buffers"]),
        max_hops=int(row["max_hops"]),
        message_time=float(row["message_time"]),
    )
    found = johnson.solve(model)
    run = johnson_sim.simulate(model, int(row["objects"]), seed=int(row["seed"]))
    return {
        "wait_model": found.wait,
        "wait": run.wait,
        "probes_model": found.probes,
        "probes": run.probes,
        "utilization_model": found.producer_utilization,
        "utilization": run.producer_utilization,
    }


def _shares(row: Row) -> dict[str, float]:
    seed = int(row["seed"])
    rule = shares.RULES.get(str(row["rule"]))
    if rule is None:
        raise InvalidArgument(f"a rule is {' or '.join(shares.RULES)}, not {row['rule']}")
    tasks = shares.random_tasks(
        random.Random(seed),
        int(row["tasks"]),
        overload=float(row["overload"]),
        spread=float(row["spread"]),
    )
    run = shares.simulate(
        tasks, float(row["seconds"]), seed=seed, schedulers=int(row["schedulers"]), rule=rule
    )
    return {"error": run.error, "comparisons": run.comparisons}


def _convoy(row: Row) -> dict[str, float]:
    model = skeen.MulticastModel(
        processes=int(row["processes"]),
        destinations=int(row["destinations"]),
        rate=float(row["rate"]),
        delay_ms=float(row["delay_ms"]),
        delays=str(row["delays"]),
        clock=str(row["clock"]),
        commute=float(row["commute"]),
    )
    run = skeen.simulate(model, int(row["messages"]), seed=int(row["seed"]))
    conflict = convoy.conflict_probability(model.processes, model.destinations)
    formula = convoy.convoy_ms(model.rate, model.delay_ms, conflict, commute=float(row["commute"]))
    return {"convoy_model_ms": formula, "convoy_ms": run.convoy_ms, "latency_ms": run.latency_ms}


def _fabriq(row: Row) -> dict[str, float]:
    servers, messages = int(row["servers"]), int(row["messages"])
    run = fabriq.simulate(servers, messages, procedure=str(row["procedure"]), seed=int(row["seed"]))
    return {
        "hops_model": fabriq.average_hops(servers, messages),
        "hops": run.average,
        "imbalance": run.imbalance,
    }


MODELS: Final[dict[str, SweptModel]] = {
    "queue": SweptModel(
        {"producers": 100, "load": 1.0, "buffers": 5, "max_hops": 3, "message_time": 1.0,
         "objects": 20_000},
        ("wait_model", "wait", "probes_model", "probes", "utilization_model", "utilization"),
        _queue,
    ),
    "shares": SweptModel(
        {"tasks": 10, "overload": 2.0, "spread": 10.0, "schedulers": 1, "rule": "carried",
         "seconds": 2.0},
        ("error", "comparisons"),
        _shares,
    ),
    "convoy": SweptModel(
        {"processes": 4, "destinations": 2, "rate": 10.0, "delay_ms": 100.0, "delays": "constant",
         "clock": "counter", "commute": 0.0, "messages": 2_000},
        ("convoy_model_ms", "convoy_ms", "latency_ms"),
        _convoy,
    ),
    "fabriq": SweptModel(
        {"servers": 64, "messages": 64_000, "procedure": "last-known"},
        ("hops_model", "hops", "imbalance"),
        _fabriq,
    ),
}  # fmt: skip


def model_of(name: str) -> SweptModel:
    found = MODELS.get(name)
    if found is None:
        raise InvalidArgument(f"no model named {name}: {', '.join(MODELS)}")
    return found


def parse(name: str, words: Sequence[str]) -> dict[str, list[Value]]:
    """`load=0.5,1,2` -> values of the parameter's type; `max_hops=1..5` is a range of integers."""
    parameters = model_of(name).parameters
    grid: dict[str, list[Value]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in parameters:
            wrong = (
                f"{name} has no parameter {key!r}"
                if equals
                else f"{word!r} is not PARAMETER=VALUE,..."
            )
            raise InvalidArgument(f"{wrong}: parameters are {', '.join(parameters)}")
        if key in grid:
            raise InvalidArgument(f"the parameter {key} is given twice")
        kind = type(parameters[key])
        grid[key] = [value for part in text.split(",") for value in _values(key, part, kind)]
    return grid


def _values(key: str, text: str, kind: type) -> Iterator[Value]:
    first, dots, last = text.partition("..")
    try:
        if kind is int and dots:
            if not 0 <= int(last) - int(first) < ROWS_MAX:
                raise ValueError(text)
            yield from range(int(first), int(last) + 1)
        elif kind is str:
            yield text
        else:
            value: int | float = kind(text)
            if not math.isfinite(value):
                raise ValueError(text)
            yield value
    except ValueError:
        what = "a whole number, or a range such as 1..5" if kind is int else "a number"
        raise InvalidArgument(f"{key}={text}: {text!r} is not {what}") from None


def rows_of(
    name: str, grid: Mapping[str, Sequence[Value]], *, repeat: int = 1, seed: int = 1
) -> list[Row]:
    """The rows of a sweep, without results."""
    model = model_of(name)
    if repeat < 1:
        raise InvalidArgument(f"repeat must be 1 or more, not {repeat}")
    axes = [list(grid.get(key, [value])) for key, value in model.parameters.items()]
    count = math.prod(map(len, axes)) * repeat
    if not 1 <= count <= ROWS_MAX:
        raise InvalidArgument(f"a sweep has 1 to {ROWS_MAX} rows, not {count}")
    rows: list[Row] = []
    for configuration, values in enumerate(product(*axes)):
        for _ in range(repeat):
            number = len(rows)
            keys = {"row": number, "configuration": configuration, "seed": seed_of(seed, number)}
            rows.append({**keys, **dict(zip(model.parameters, values, strict=True))})
    return rows


def seed_of(seed: int, row: int) -> int:
    """Below 2^62, so that it is a long of Spark and Parquet; rows of different sweeps differ."""
    return (seed * 0x9E3779B97F4A7C15 + row * 0xBF58476D1CE4E5B9 + 1) % 2**62


def evaluate(name: str, row: Row) -> Row:
    """One run."""
    return {**row, **model_of(name).run(row)}


def summary(name: str, rows: Iterable[Row]) -> Row:
    """The mean and the standard deviation of each result over the runs of one configuration."""
    model = model_of(name)
    runs = sorted(rows, key=lambda row: row["row"])
    first = runs[0]
    reduced: Row = {"configuration": first["configuration"]}
    reduced |= {key: first[key] for key in model.parameters}
    reduced["runs"] = len(runs)
    for key in model.results:
        values = [float(row[key]) for row in runs]
        mean = math.fsum(values) / len(values)
        squares = math.fsum((value - mean) ** 2 for value in values)
        reduced[key] = mean
        reduced[f"{key}_deviation"] = math.sqrt(squares / max(1, len(values) - 1))
    return reduced


def summaries(name: str, rows: Sequence[Row]) -> list[Row]:
    grouped: dict[Value, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["configuration"], []).append(row)
    return [summary(name, grouped[key]) for key in sorted(grouped)]


def run_pool(
    name: str,
    rows: Sequence[Row],
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[Row]:
    """Evaluates the rows in this process, or in a pool of worker processes."""
    if workers < 1:
        raise InvalidArgument(f"workers must be 1 or more, not {workers}")
    report = progress or (lambda done: None)
    found: list[Row] = []
    if workers == 1:
        for row in rows:
            found.append(evaluate(name, row))
            report(len(found))
        return found
    # A forked copy of a process with threads (a progress bar has one) may hang: start fresh ones.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(rows)), mp_context=context) as pool:
        try:
            for row in pool.map(evaluate, [name] * len(rows), rows):
                found.append(row)
                report(len(found))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found
