"""The scenarios: the faults of a pipeline, and their times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .stage import Stage, Stuck

#: Executors in separate processes; local mode has none to kill.
EXECUTORS: Final = "local-cluster[2,1,1024]"
#: `local[2]` does not repeat a failed task; this does, three times.
REPEATING: Final = "local[2,4]"


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    play: Callable[[Stage], None]
    nodes: int = 1


def _killed_at(point: str) -> Callable[[Stage], None]:
    """The driver dies there in one query, its successor in the other, the third one completes."""

    def play(stage: Stage) -> None:
        queries = ("a", "b") if point in {"reserved", "logged", "mid-read"} else ("a",)
        for query in queries:
            stage.again()
            stage.start(query=query, point=point, action="kill-driver").dies()
            stage.sprung()
        stage.start().ends()

    return play


def executor_killed(stage: Stage) -> None:
    for query in ("a", "b"):
        stage.again()
        stage.start(query=query, point="mid-read", action="kill-executor", master=EXECUTORS).ends()
        stage.sprung()


def _node_killed(point: str, action: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        driver = stage.start(query="a", point=point, action=action)
        stage.asked(driver)
        stage.kill_node()
        stage.go()
        driver.ends()
        stage.sprung()
        stage.bring_back()

    return play


def failing_attempts(stage: Stage) -> None:
    for query, point in (("a", "mid-read"), ("b", "mid-read"), ("a", "mid-write")):
        stage.again()
        stage.start(query=query, point=point, action="fail", master=REPEATING).ends()
        stage.sprung()


def speculation(stage: Stage) -> None:
    """Spark starts a second copy only on another host, so there are two by name."""
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
    }
    with stage.spark_cluster() as master:
        for point in ("mid-read", "mid-write"):
            stage.again()
            driver = stage.start(
                query="a", point=point, action="slow", master=master, settings=settings
            )
            driver.ends()
            stage.ran_twice()


def two_drivers(stage: Stage) -> None:
    older = stage.start(available_now=False)
    stage.drained(older)
    younger = stage.start(available_now=False)
    older.fails("a newer driver has opened", "Fenced")
    stage.push_more()
    stage.drained(younger)
    younger.kill()
    stage.start().ends()


def driver_held(stage: Stage) -> None:
    """A driver that was suspended publishes late, after another driver has published the batch."""
    older = stage.start(query="a", point="staged", action="ask")
    stage.asked(older)
    stage.start(query="", point="", action="").ends()
    stage.go()
    older.fails_somehow()
    stage.start().ends()


def worker_late(stage: Stage) -> None:
    """A busy machine: Spark gives up on the worker of a source, and the query is started again."""
    driver = stage.start(python=stage.late_python())
    driver.ends()
    if not driver.late_workers:
        raise Stuck("Spark waited for the late worker")


_ALL = (
    Scenario("driver-reserved", "driver killed after it reserved", _killed_at("reserved")),
    Scenario("driver-logged", "driver killed after Spark's offset log", _killed_at("logged")),
    Scenario("driver-mid-read", "driver killed while tasks read", _killed_at("mid-read")),
    Scenario("driver-staged", "driver killed when all rows are staged", _killed_at("staged")),
    Scenario("driver-published", "driver killed after it published", _killed_at("published")),
    Scenario("executor", "an executor killed while it reads", executor_killed),
    Scenario("node-read", "a node of three killed during a read",
             _node_killed("mid-read", "ask"), nodes=3),
    Scenario("node-publish", "a node of three killed during a publish",
             _node_killed("staged", "tell"), nodes=3),
    Scenario("attempts", "every task's first attempt fails half-way", failing_attempts),
    Scenario("speculation", "slow tasks run twice at once", speculation),
    Scenario("two-drivers", "a second driver on the same subscription", two_drivers),
    Scenario("driver-held", "a driver pauses while another takes over", driver_held),
    Scenario("worker-late", "a Python worker starts too late for Spark", worker_late),
)  # fmt: skip
SCENARIOS: Final = {each.name: each for each in _ALL}
