"""What a seed draws: how large the world is, what breaks in it, and what its clients do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from .network import Weather


@dataclass(frozen=True)
class Options:
    nodes: int = 3
    partitions: int = 2
    pushes: int = 16
    weather: Weather = field(default_factory=Weather)
    #: How long things break, and how many may.
    span_us: int = 4_500_000
    faults_max: int = 8
    #: What comes within such a time of each other is heard in one round, as a busy node does; and
    #: while nothing breaks, before and after.
    gather_us: int = 0
    calm_gather_us: int = 0
    #: How often it is looked whether all is well.
    look_us: int = 250_000
    # What breaks:
    crashes: bool = True
    blackouts: bool = False
    cuts: bool = True
    freezes: bool = True
    #: A crash in the middle of a write, which then is on the disk as a whole or not at all.
    tears: bool = False
    #: A write that fails: the machine must end.
    failures: bool = False
    #: A node is told to stop: it hands over first.
    stops: bool = False
    #: One flipped bit on one disk: the machine must be replaced.
    rot: bool = False
    #: Clocks differ by up to so much.
    skew_us: int = 0
    # Who comes and goes:
    joins: bool = False
    leaves: bool = False
    witness: bool = False
    #: Copies of a partition that nobody waits for.
    learners: int = 1
    # What clients do besides:
    dead_letters: bool = False
    limited: bool = False
    ordered: bool = False
    #: A queue that is purged, deleted and made again.
    temporary: bool = False
    counters: bool = False
    delays: bool = False
    updates: bool = False

    @staticmethod
    def drawn(seed: int, rng: random.Random, *, whole: bool) -> Options:
        """What a seed stands for. The size of the run comes from a generator of its own: so a run
        whose size was not drawn (`whole`), as seeds were once, is still the same run."""
        options = Options.draw(rng)
        return options if whole else options.sized(random.Random(f"size of {seed}"))

    def sized(self, rng: random.Random) -> Options:
        """Many short stories, some long ones; and what a seed did not draw from the first."""
        luck = rng.random()
        scale = 0.4 if luck < 0.6 else 1.0 if luck < 0.92 else 2.0
        return replace(
            self,
            span_us=int(self.span_us * scale),
            pushes=max(4, int(self.pushes * scale)),
            faults_max=max(3, int(self.faults_max * scale)),
            gather_us=rng.choice([0, 0, 200, 1000]),
            calm_gather_us=1000,
            look_us=100_000,
            ordered=rng.random() < 0.3,
            stops=rng.random() < 0.2,
            learners=rng.choice([0, 1, 1, 1, 1, 1, 1, 2]),
        )

    @staticmethod
    def draw(rng: random.Random) -> Options:
        def chance(share: float) -> bool:
            return rng.random() < share

        return Options(
            nodes=rng.choice([2, 3, 3, 3, 3, 4, 5]),
            partitions=rng.choice([1, 2, 2, 3]),
            pushes=rng.choice([8, 14, 24]),
            weather=Weather.draw(rng),
            crashes=chance(0.6),
            blackouts=chance(0.1),
            cuts=chance(0.5),
            freezes=chance(0.4),
            tears=chance(0.3),
            failures=chance(0.2),
            rot=chance(0.15),
            skew_us=rng.choice([0, 0, 300_000, 5_000_000]),
            joins=chance(0.25),
            leaves=chance(0.25),
            witness=chance(0.15),
            dead_letters=chance(0.4),
            limited=chance(0.25),
            temporary=chance(0.25),
            counters=chance(0.35),
            delays=chance(0.3),
            updates=chance(0.2),
        )
