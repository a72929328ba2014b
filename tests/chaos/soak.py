"""A soak test of an hour: ``python -m tests.chaos.soak --minutes 60 --json FILE --plot PNG``.

A cluster serves a mixed load at a modest rate, and every *cycle* of five minutes has the same
events: a node is killed and restarted, one is paused, one joins, one leaves. Each cycle has its own
queues and its own load processes; the next ones begin before the last ones end, so that the load
never stops. At its end a cycle is drained and judged, its journals are discarded and its queues
deleted: this program keeps the history of one cycle only, however long the soak is. Node 0 is never
killed, and runs through all cycles.

The verdict: nothing lost, duplicated, or redelivered after a confirmed ack; the nodes' memory
within five per cent, and their descriptors flat (see ``samples`` for the comparisons). A run must
be longer than 50 minutes for the nodes to be judged.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

import weft
from tests.total_queue import History
from weft.errors import WeftError
from weft.testing import Cluster

from . import samples
from .load_processes import ROLES, LoadProcesses
from .outcome import Outcome, judge, longest_pause
from .run import drain
from .samples import SAMPLE_S, WARM_UP_S, Flatness, Sample
from .soak_plot import draw
from .stage import Stage, stage
from .sundry import queues_of
from .worker import Pace

CYCLE_S: Final = 300.0
#: About a quarter of a core for nodes and load together, on the machine of docs/reliability.md.
PACE: Final = Pace(0.5, (60.0, 150.0))
PAUSE_S: Final = 8.0
SETTLE_S: Final = 180.0
#: Time of each event, as a fraction of the cycle.
_KILL_AT, _PAUSE_AT, _JOIN_AT, _LEAVE_AT = 0.05, 0.3, 0.45, 0.7


class Soak:
    def __init__(self, scene: Stage, folder: Path, cycle_s: float) -> None:
        self.scene = scene
        self.cluster: Cluster = scene.cluster
        self.folder = folder
        self.cycle_s = cycle_s
        self.began = time.monotonic()
        self.samples: list[Sample] = []
        self.cycles: list[Outcome] = []
        self.faults: Counter[str] = Counter()
        self.marks: list[tuple[float, str]] = []
        #: By the node's number: the pid, and the number of the process, counted from 0.
        self._lives: dict[int, tuple[int, int]] = {}
        self._joined: list[int] = []
        #: Called after each cycle.
        self.on_cycle: Callable[[], object] = lambda: None
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="samples", daemon=True)

    def run(self, until: float) -> None:
        self._sampler.start()
        load: LoadProcesses | None = None
        try:
            number = 0
            while time.monotonic() < until:
                following = self._begin(number)
                if load is not None:
                    self._end(load, number - 1)
                load = following
                self._cycle(number, min(until, time.monotonic() + self.cycle_s))
                number += 1
            assert load is not None
            self._end(load, number - 1)
            load = None
        finally:
            if load is not None:
                load.close()
            self._over.set()
            self._sampler.join()

    # --- a cycle --------------------------------------------------------------------------

    def _begin(self, number: int) -> LoadProcesses:
        folder = self.folder / f"cycle-{number}"
        folder.mkdir()
        with weft.connect(self.cluster.servers) as client:
            for name, settings in reversed(queues_of(_queue(number)).items()):
                client.create_queue(name, **settings)
        roles = (*ROLES, "sundry")
        load = LoadProcesses(folder, _queue(number), self.cluster.servers, History(), roles, PACE)
        load.begin()
        return load

    def _end(self, load: LoadProcesses, number: int) -> None:
        """Drain, judge and discard a cycle."""
        outcome = Outcome(scenario=f"cycle {number}", seed=number)
        ended = time.monotonic()
        load.end()
        drain(self.cluster.servers, load.history, list(queues_of(load.queue)))
        outcome.total_s = time.monotonic() - ended
        outcome.pause_s = longest_pause(load.producers(plain=False), self.began, ended)
        outcome.plain_pause_s = longest_pause(load.producers(plain=True), self.began, ended)
        # Faults happen throughout the cycle: leases may be void at any time.
        judge(outcome, load.history, load.journals, (0.0, time.monotonic()))
        outcome.notes = list(load.troubles)
        if load.troubles:
            outcome.failure = "; ".join(load.troubles)
        self.cycles.append(outcome)
        if outcome.ok:
            shutil.rmtree(load.folder)
        with weft.connect(self.cluster.servers) as client:
            for name in queues_of(load.queue):
                client.delete_queue(name)
        self._say(f"cycle {number}: {_word(outcome)}")
        self.on_cycle()

    def _cycle(self, number: int, until: float) -> None:
        """The events of a cycle; an event that does not fit before `until` is skipped."""
        start = time.monotonic()
        joined: list[int] = []
        happenings: list[tuple[float, Callable[[], None]]] = [
            (_KILL_AT, lambda: self._kill(1 + number % (self.scene.nodes - 1))),
            (_PAUSE_AT, lambda: self._pause(number % self.scene.nodes)),
            (_JOIN_AT, lambda: joined.append(self._join())),
            (_LEAVE_AT, lambda: self._leave(joined.pop())),
        ]
        for part, happen in happenings:
            time.sleep(max(0.0, min(start + part * self.cycle_s, until) - time.monotonic()))
            if time.monotonic() >= until and not joined:
                return
            happen()
        time.sleep(max(0.0, until - time.monotonic()))

    def _kill(self, victim: int) -> None:
        self._mark(f"kill {victim}", "kills")
        self.cluster.kill(victim)
        self.cluster.recovered(SETTLE_S)
        self.cluster.start(victim)
        self.cluster.settled(SETTLE_S)

    def _pause(self, victim: int) -> None:
        self._mark(f"pause {victim}", "pauses")
        self.cluster.pause(victim)
        time.sleep(PAUSE_S)
        self.cluster.resume(victim)
        self.cluster.settled(SETTLE_S)

    def _join(self) -> int:
        self._mark("join", "joins")
        number = self.cluster.add()
        self.cluster.settled(SETTLE_S)
        return number

    def _leave(self, number: int) -> None:
        self._mark("leave", "leaves")
        self.cluster.leave(number, SETTLE_S)
        self.cluster.stop(number)
        self.cluster.settled(SETTLE_S)
        shutil.rmtree(self.cluster.node(number).data)

    # --- samples and reports --------------------------------------------------------------

    def _mark(self, text: str, kind: str) -> None:
        self.faults[kind] += 1
        self.marks.append((time.monotonic() - self.began, text))
        self._say(text)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:8.1f} {text}", flush=True)

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for number in range(len(self.cluster._nodes)):
                process = self.cluster.node(number).process
                if process is None or process.poll() is not None:
                    continue
                pid, life = self._lives.get(number, (0, -1))
                if number >= self.scene.nodes and life < 0:
                    life = len(self._joined) - 1  # each joiner is one more life of the group
                    self._joined.append(number)
                if pid != process.pid:
                    self._lives[number] = pid, life = process.pid, life + 1
                group = f"node {number}" if number < self.scene.nodes else "joiner"
                data = self.cluster.node(number).data
                seen = samples.look(time.monotonic() - self.began, group, life, pid, data)
                if seen is not None:
                    self.samples.append(seen)


def _queue(number: int) -> str:
    return f"soak-{number}"


def _word(outcome: Outcome) -> str:
    said = "ok" if outcome.ok else f"FAILED {outcome.failure} {outcome.violations}"
    return (
        f"{said}; {outcome.counts.get('messages', 0)} messages, "
        f"{outcome.counts.get('delivered', 0)} deliveries, {outcome.errors} errors, longest pause "
        f"{outcome.pause_s:.2f} s, plain {outcome.plain_pause_s:.2f} s"
    )


def report(soak: Soak, failure: str, minutes: float, warm_up_s: float) -> dict[str, Any]:
    flat = samples.judge(soak.samples, warm_up_s)
    counts: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    for cycle in soak.cycles:
        counts.update(cycle.counts)
        violations.update({what: len(found) for what, found in cycle.violations.items()})
    if not flat and not failure:
        failure = (
            f"memory was not judged, as the run has too few samples after {warm_up_s:.0f} s: raise "
            "--minutes, or lower --warm-up-s"
        )
    clean = not failure and not violations and all(cycle.ok for cycle in soak.cycles)
    return {
        "ok": clean and bool(flat) and all(each.flat for each in flat),
        "minutes": round((time.monotonic() - soak.began) / 60, 1),
        "asked_minutes": minutes,
        "warm_up_s": warm_up_s,
        "buffer_factor": samples.buffer_factor(soak.samples),
        "failure": failure,
        "faults": dict(soak.faults),
        "counts": dict(counts),
        "violations": dict(violations),
        "errors": sum(cycle.errors for cycle in soak.cycles),
        "flatness": [msgspec.to_builtins(each) | {"growth": each.growth} for each in flat],
        "cycles": [msgspec.to_builtins(each) for each in soak.cycles],
        "marks": soak.marks,
        "samples": [msgspec.to_builtins(each) for each in soak.samples],
    }


def tell(found: dict[str, Any]) -> str:
    counts = found["counts"]
    lines = [
        f"soak: {'ok' if found['ok'] else 'FAILED'} after {found['minutes']} minutes; "
        + ", ".join(f"{number} {what}" for what, number in found["faults"].items()),
        f"  {counts.get('messages', 0):,} messages, {counts.get('delivered', 0):,} deliveries, "
        f"{counts.get('table verbs', 0):,} table verbs, {found['errors']} errors seen by "
        f"applications; violations: {found['violations'] or 'none'}",
    ]
    lines += ["  " + msgspec.convert(each, Flatness).line() for each in found["flatness"]]
    return "\n".join([*lines, *([found["failure"]] if found["failure"] else [])])


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes are ended
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=3, help="that stay; default 3")
    parser.add_argument("--cycle-s", type=float, default=CYCLE_S, help="the length of a cycle")
    parser.add_argument("--warm-up-s", type=float, default=WARM_UP_S)
    parser.add_argument("--json", type=Path, help="a file for everything that was seen")
    parser.add_argument("--plot", type=Path, help="a PNG of memory and descriptors over time")
    parser.add_argument("--keep", type=Path, help="where nodes, logs and failed journals stay")
    asked = parser.parse_args()
    if asked.nodes < 2:
        parser.error("--nodes must be 2 or more: one of them is killed while another serves")
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="weft-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    failure, rng = "", random.Random(1)
    with stage(folder, asked.nodes, hosts=False, rng=rng, fault_s=PAUSE_S) as scene:
        soak = Soak(scene, folder, asked.cycle_s)

        def save(why: str = "") -> dict[str, Any]:
            """Save the figures so far: a failure at the end does not lose an hour's figures."""
            found = report(soak, why, asked.minutes, asked.warm_up_s)
            if asked.json:
                asked.json.write_text(json.dumps(found) + "\n")
            return found

        soak.on_cycle = save
        try:
            soak.run(soak.began + 60 * asked.minutes)
        except (AssertionError, OSError, WeftError):
            failure = traceback.format_exc()
        found = save(failure)
    print(tell(found), flush=True)
    if asked.plot:
        draw(found, asked.plot)
    if found["ok"] and asked.keep is None:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}", flush=True)
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
