"""The simulated world: machines with disks, a network, clients, and one virtual clock.

The node code is the real one (``weft.dht.core``); only the network, the disk and the clock are
not. Everything random comes from one generator, so a seed is a run: the same seed gives the same
events, and ``digest`` says so.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.dht import view as views
from weft.dht.core import Core, Pace, Size
from weft.dht.messages import AnyMessage
from weft.dht.replica import Mutant, Role
from weft.dht.view import Member
from weft.persistence.memory import MemoryStore

from .check import Checker
from .network import Network, Weather

SECOND = 1_000_000
START = 1_000 * SECOND
_RETRY = 400_000


@dataclass
class Machine:
    """One node: its disk, its process while it runs, and when it is frozen."""

    name: str
    store: MemoryStore
    core: Core
    up: bool = True
    boots: int = 1
    frozen_until: int = 0


@dataclass
class Push:
    """One message of a client, until it is acknowledged."""

    data: bytes
    partition: int
    done: bool = False
    tries: int = 0
    asked: str = ""


@dataclass
class Options:
    """What a seed draws."""

    nodes: int = 4
    partitions: int = 3
    pushes: int = 60
    weather: Weather = field(default_factory=Weather)
    crashes: bool = True
    cuts: bool = True
    freezes: bool = True
    min_sync: int = 2

    @staticmethod
    def draw(rng: random.Random) -> Options:
        return Options(
            nodes=rng.choice([3, 3, 4, 5]),
            partitions=rng.choice([1, 2, 4]),
            pushes=rng.choice([20, 40]),
            weather=Weather.draw(rng),
            crashes=rng.random() < 0.7,
            cuts=rng.random() < 0.6,
            freezes=rng.random() < 0.5,
        )


class World:
    def __init__(self, seed: int, options: Options | None = None, mutant: str = "") -> None:
        self.rng = random.Random(seed)
        self.options = options or Options.draw(self.rng)
        self.min_sync = self.options.min_sync
        self.now = START
        self._mutant = mutant
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.story: list[str] = []
        self.network = Network(self.rng, Weather())
        self.checker = Checker(self)
        self.machines: dict[str, Machine] = {}
        self.pushes: list[Push] = []
        self.healed = False

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    # --- building -------------------------------------------------------------------------

    def build(self) -> None:
        names = [f"n{number}" for number in range(self.options.nodes)]
        for name in names:
            store = MemoryStore()
            machine = self.machines[name] = Machine(name, store, self._process(name, store))
            if name == names[0]:
                machine.core.found(Member(name), self.options.partitions)
                store.write(machine.core.end(), sync=True)
                machine.core = self._process(name, store)
            machine.core.recover(self.now)
            self._tick(machine, machine.boots)
        founder = self.machines[names[0]].core
        for name in names[1:]:
            founder.wish(views.join(name, Member(name)))
        voters = tuple(names[:3])
        founder.wish(views.revote(voters))
        founder.wish(views.revote(voters))

    def _process(self, name: str, store: MemoryStore) -> Core:
        rng = self.rng
        pace = Pace(ping=100_000, suspect=600_000, again=60_000, backoff=40_000)
        size = Size(min_sync=self.options.min_sync)
        core = Core(name, store, pace=pace, size=size, entropy=lambda below: rng.randrange(below))
        core.mutant = Mutant()
        if self._mutant:
            setattr(core.mutant, self._mutant, True)
        return core

    # --- time -----------------------------------------------------------------------------

    def after(self, delay: int, event: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay, self._sequence, event))

    def run(self, until: int) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def note(self, text: str) -> None:
        self._digest.update(f"{self.now} {text}\n".encode())
        self.story.append(f"{self.now - START:>10} {text}")
        if len(self.story) > 400:
            del self.story[:200]

    # --- machines -------------------------------------------------------------------------

    def _tick(self, machine: Machine, boot: int) -> None:
        if machine.boots != boot:
            return
        self.round(machine, lambda core: None)
        wait = max(1_000, machine.core.next_due() - self.now, machine.frozen_until - self.now)
        self.after(wait, lambda: self._tick(machine, boot))

    def round(self, machine: Machine, work: Callable[[Core], None]) -> None:
        """What a driver does: work, write, then say."""
        if not machine.up or self.now < machine.frozen_until:
            return
        core = machine.core
        core.begin(self.now)
        work(core)
        changes = core.end()
        if changes:
            machine.store.write(changes, sync=not core.mutant.skipped_fsync)
            self.checker.wrote(machine, changes)
        self.checker.looked(machine)
        for to, message in core.take_sends():
            self._carry(machine.name, to, message)
        for outcome in core.take_outcomes():
            self._outcome(machine, outcome.to, outcome.lsn)

    def _carry(self, sender: str, to: str, message: AnyMessage) -> None:
        for delay in self.network.delays(sender, to):
            self.after(delay, lambda: self._arrive(sender, to, message))

    def _arrive(self, sender: str, to: str, message: AnyMessage) -> None:
        machine = self.machines.get(to)
        if machine is None or not machine.up:
            return
        if self.now < machine.frozen_until:
            self.after(machine.frozen_until - self.now, lambda: self._arrive(sender, to, message))
            return
        self.note(f"{sender}>{to} {type(message).__name__}")
        self.round(machine, lambda core: core.receive(sender, message))

    def crash(self, machine: Machine) -> None:
        if machine.up:
            self.note(f"crash {machine.name}")
            machine.up = False
            machine.boots += 1
            machine.store = machine.store.crash(self.rng)

    def start(self, machine: Machine) -> None:
        if not machine.up:
            self.note(f"start {machine.name}")
            machine.up = True
            machine.frozen_until = 0
            machine.core = self._process(machine.name, machine.store)
            machine.core.recover(self.now)
            self.checker.recovered(machine)
            self._tick(machine, machine.boots)

    # --- clients --------------------------------------------------------------------------

    def push(self, push: Push) -> None:
        """Tries until it is acknowledged, always under the same name."""
        if push.done:
            return
        push.tries += 1
        self.after(_RETRY, lambda: self.push(push))
        up = [each for each in self.machines.values() if each.up and each.core.view.places]
        if not up:
            return
        believed = self.rng.choice(up).core.view.places[push.partition].primary
        machine = self.machines[believed]
        self.round(machine, lambda core: self._take(machine, core, push))

    def _take(self, machine: Machine, core: Core, push: Push) -> None:
        replica = core.replicas.get(push.partition)
        if replica is None or replica.role is not Role.ACTIVE:
            return
        log = replica.log
        for lsn, _, data in log.entries(1, log.end):
            if data == push.data:
                if lsn <= replica.committed:
                    self._outcome(machine, push, lsn)
                return  # stored, and not acknowledged yet: the client asks again
        core.propose(push.partition, push.data, push)

    def _outcome(self, machine: Machine, to: object, lsn: int | None) -> None:
        assert isinstance(to, Push)
        if lsn is not None:
            self.note(f"ok {machine.name} {to.data.decode()} {lsn}")
            self.checker.answered(machine, to.partition, to.data, lsn)
            to.done = True
