"""Options drawn by a seed: the size of the world, its faults, and the behaviour of its clients."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from .network import NetworkFaults


@dataclass(frozen=True)
class Options:
    nodes: int = 3
    partitions: int = 2
    pushes: int = 16
    network_faults: NetworkFaults = field(default_factory=NetworkFaults)
    #: Duration of the faults, and their largest number.
    span_us: int = 4_500_000
    faults_max: int = 8
    #: Messages that arrive at a node within this time share one round, as at a busy node; and the
    #: same before and after the faults.
    gather_us: int = 0
    calm_gather_us: int = 0
    #: Interval at which a run checks whether the cluster has recovered.
    look_us: int = 250_000
    #: The lease of every queue, and for how long most consumers hold a message.
    lease_ms: int = 1_000
    hold_us_max: int = 20_000
    # Faults:
    crashes: bool = True
    blackouts: bool = False
    cuts: bool = True
    freezes: bool = True
    #: A crash in the middle of a write, which is then on the disk as a whole or not at all.
    tears: bool = False
    #: A write that fails: the process must exit.
    failures: bool = False
    #: A node receives SIGTERM: it hands over first.
    stops: bool = False
    #: At the end of the run all nodes are stopped, and all but one are started.
    stop_all: bool = False
    #: One flipped bit on one disk: the machine must be replaced.
    rot: bool = False
    #: Clocks differ by up to this much.
    skew_us: int = 0
    # Membership changes:
    joins: bool = False
    leaves: bool = False
    witness: bool = False
    #: Copies of a partition that an acknowledgement does not wait for.
    learners: int = 1
    # Further client behaviour:
    dead_letters: bool = False
    limited: bool = False
    ordered: bool = False
    #: A grouped queue.
    grouped: bool = False
    #: Pushes to several queues, and a topic.
    multicasts: bool = False
    #: Pushes to several ordered queues at once.
    sequences: bool = False
    #: A stochastic queue, and how its consumers choose nodes.
    stochastic: bool = False
    access: str = "even"
    #: A queue that is purged, deleted and created again.
    temporary: bool = False
    counters: bool = False
    delays: bool = False
    updates: bool = False
    cancels: bool = False
    #: Pushes to queues without an order name tenants.
    tenants: bool = False
    #: The first queue has a rate limit and a limit of messages in flight.
    limits: bool = False
    #: Clients of the hash table with all its verbs.
    tables: bool = False
    #: The queue "work" keeps its leases.
    keep_leases: bool = False
    #: Clients that commit acks, pushes and table writes together.
    transactions: bool = False
    #: Task graphs and their workers.
    graphs: bool = False

    @staticmethod
    def drawn(seed: int, rng: random.Random, *, whole: bool) -> Options:
        """The options of a seed.

        The size of the run comes from a separate generator. So a run of fixed size (`whole`), as
        all runs once had, is still the same run.
        """
        options = Options.draw(rng)
        if whole:
            return options
        # From generators of their own: a seed without a grouped queue and a table keeps its run.
        tables = random.Random(f"tables of {seed}").random() < 0.3
        grouped = random.Random(f"groups of {seed}").random() < 0.3
        kind = random.Random(f"stochastic queue of {seed}")
        stochastic, access = kind.random() < 0.3, kind.choice(["even", "rates", "near"])
        multicasts = random.Random(f"multicasts of {seed}").random() < 0.3
        sequences = random.Random(f"sequences of {seed}").random() < 0.3
        sized = options.sized(random.Random(f"size of {seed}"))
        transactions = random.Random(f"transactions of {seed}").random() < 0.3
        graphs = random.Random(f"graphs of {seed}").random() < 0.25
        keep_leases = random.Random(f"kept leases of {seed}").random() < 0.2
        tenants = random.Random(f"tenants of {seed}").random() < 0.3
        limits = random.Random(f"limits of {seed}").random() < 0.2
        return replace(
            sized,
            tables=tables,
            grouped=grouped,
            transactions=transactions,
            graphs=graphs,
            multicasts=multicasts,
            sequences=sequences,
            keep_leases=keep_leases,
            stochastic=stochastic,
            access=access,
            tenants=tenants,
            limits=limits,
        )

    def sized(self, rng: random.Random) -> Options:
        """Many short runs, some long ones; and options added after the first generator."""
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
            stop_all=rng.random() < 0.15 and not self.rot,
            cancels=rng.random() < 0.3,
        )

    @staticmethod
    def of_moves(seed: int) -> Options:
        """No faults: leads move because nodes stop and start, join and leave.

        Consumers hold messages for about as long as the time between two moves.
        """
        rng = random.Random(f"moves of {seed}")
        return Options(
            nodes=rng.choice([3, 3, 4, 5]),
            partitions=rng.choice([1, 2, 3]),
            pushes=24,
            faults_max=6,
            lease_ms=5_000,
            hold_us_max=3_000_000,
            crashes=False,
            cuts=False,
            freezes=False,
            stops=True,
            joins=rng.random() < 0.5,
            leaves=rng.random() < 0.5,
            skew_us=rng.choice([0, 300_000, 5_000_000]),
            ordered=rng.random() < 0.4,
            grouped=random.Random(f"groups of moves {seed}").random() < 0.4,
            multicasts=random.Random(f"multicasts of moves {seed}").random() < 0.3,
            sequences=random.Random(f"sequences of moves {seed}").random() < 0.3,
            dead_letters=rng.random() < 0.4,
            gather_us=rng.choice([0, 1000]),
            calm_gather_us=1000,
            look_us=100_000,
        )

    @staticmethod
    def draw(rng: random.Random) -> Options:
        def chance(share: float) -> bool:
            return rng.random() < share

        return Options(
            nodes=rng.choice([2, 3, 3, 3, 3, 4, 5]),
            partitions=rng.choice([1, 2, 2, 3]),
            pushes=rng.choice([8, 14, 24]),
            network_faults=NetworkFaults.draw(rng),
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
