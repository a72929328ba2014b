"""The simulated world: machines with disks, a network, clients, and one virtual clock.

The node code is the real one (``weft.server.core``: the queue engine and the cluster core); only
the network, the disk and the clock are simulated. All randomness comes from one generator, so a
seed is a run: the same seed gives the same events, proven by ``digest``.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Sequence

from weft.dht import replica_limits, snapshot_transfer
from weft.dht.core import Timing, decode_view
from weft.dht.messages import AnyMessage, PeerRequest, Ping
from weft.dht.view import Member, View
from weft.errors import StorageError, StoreDamaged
from weft.persistence.memory import MemoryStore
from weft.persistence.store import Change
from weft.proto import wire
from weft.server.core.node_core import NodeCore
from weft.server.core.operation import Pause
from weft.server.engine.state import Answered

from .check import Checker
from .machine import Machine, PowerLoss
from .network import Network, NetworkFaults
from .options import Options

SECOND = 1_000_000
START = 1_000_000 * SECOND
PACE = Timing(ping=400_000, suspect=1_000_000, again=200_000, backoff=40_000, grace=20 * SECOND)
#: Limits of large logs, lowered so that short runs reach them.
for _module, _name, _small in (
    (replica_limits, "ENTRIES_MAX", 8),
    (replica_limits, "KEEP_MAX", 24),
    (replica_limits, "APPLY_MAX", 8),
    (snapshot_transfer, "PIECE_BYTES", 400),
):
    assert hasattr(_module, _name), "the code reads the limit from another module"
    setattr(_module, _name, _small)
#: A longer pause between retries: a run has few rounds, and retries should not use them up.
setattr(Pause.__new__, "__defaults__", (120_000,))  # noqa: B010

#: A client disconnects after this time without an answer.
_PATIENCE = 2 * SECOND


def _nothing(node_core: NodeCore) -> None:
    """A round that only does due work."""


OnAnswer = Callable[[Machine, wire.AnyAnswer, Sequence[bytes]], None]


class World:
    def __init__(
        self,
        seed: int,
        options: Options | None = None,
        planted_bugs: str = "",
        *,
        whole: bool = False,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.options = options or Options.drawn(seed, self.rng, whole=whole)
        self.now = START
        #: Messages that arrive within this time of each other share one round.
        self.gather_us = self.options.calm_gather_us
        self._mutant = planted_bugs
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self.events_count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.story: list[str] = []
        self.network = Network(self.rng, NetworkFaults())
        self.machines: dict[str, Machine] = {}
        self.checker = Checker(self)
        self._callers: dict[object, tuple[wire.AnyRequest, OnAnswer]] = {}
        self._tokens = 0

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    # --- building -------------------------------------------------------------------------

    def build(self) -> None:
        first = self.add_machine("n0")
        first.node_core.found(Member("n0", "n0"), self.options.learners)
        first.node_core.recover(self.now + first.skew)
        self.tick(first, first.boots)
        for number in range(1, self.options.nodes):
            name = f"n{number}"
            self.join(name, witness=self.options.witness and number == self.options.nodes - 1)

    def add_machine(self, name: str, *, witness: bool = False) -> Machine:
        store = MemoryStore(name)
        skew = self.rng.randrange(self.options.skew_us + 1)
        machine = Machine(name, store, self._process(name, store), skew, witness)
        self.machines[name] = machine
        self.checker.started(machine)
        return machine

    def join(self, name: str, *, witness: bool = False) -> None:
        """A new machine asks any member for admission, until admitted."""
        machine = self.add_machine(name, witness=witness)
        machine.node_core.recover(self.now + machine.skew)
        self.tick(machine, machine.boots)
        self._ask_in(machine)

    def _ask_in(self, machine: Machine) -> None:
        if machine.gone or machine.node_core.view.members:
            return
        self.after(SECOND, lambda: self._ask_in(machine))
        member = self.member()
        if member is not None and machine.up:
            request = machine.join_request()

            def joined(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
                if isinstance(answer, wire.Joined) and machine.up:
                    view = decode_view(answer.view)
                    self.round(machine, lambda node_core: node_core.core.learn(view))

            self.ask(member, request, (), joined, plain=True)

    def _process(self, name: str, store: MemoryStore) -> NodeCore:
        rng = self.rng
        node_core = NodeCore(
            name, "simulated", store, partitions=self.options.partitions,
            cache_bytes=1 << 16, entropy=lambda: rng.getrandbits(62) + 1, pace=PACE,
        )  # fmt: skip
        if self._mutant:
            assert hasattr(node_core.core.planted_bugs, self._mutant), f"no mutant {self._mutant}"
            setattr(node_core.core.planted_bugs, self._mutant, True)
        return node_core

    # --- time -----------------------------------------------------------------------------

    def after(self, delay: int, event: Callable[[], None]) -> None:
        self.events_count += 1
        heapq.heappush(self._events, (self.now + delay, self.events_count, event))

    def run(self, until: int) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def note(self, text: str) -> None:
        line = f"{self.now - START:>10} {text}"
        self._digest.update(line.encode())
        self.story.append(line)
        if len(self.story) > 600:
            del self.story[:300]

    # --- machines -------------------------------------------------------------------------

    def member(self) -> Machine | None:
        """Any machine that runs and is a member of the cluster."""
        up = [m for m in self.machines.values() if m.up and m.name in m.node_core.view.members]
        return self.rng.choice(up) if up else None

    @property
    def newest_view(self) -> View:
        return max(
            (m.node_core.view for m in self.machines.values()), key=lambda view: view.version
        )

    def tick(self, machine: Machine, boot: int) -> None:
        if machine.boots == boot and machine.up:
            if self.now < machine.frozen_until:
                self.after(machine.frozen_until - self.now, lambda: self.tick(machine, boot))
            else:
                self.round(machine, _nothing)

    def round(self, machine: Machine, work: Callable[[NodeCore], None]) -> None:
        """One round of a driver: work, write, then send."""
        if not machine.up or self.now < machine.frozen_until:
            return
        node_core = machine.node_core
        try:
            node_core.begin(self.now + machine.skew)
            if machine.inbox:
                inbox, machine.inbox = machine.inbox, []
                for came in inbox:
                    came(node_core)
            work(node_core)
            touched = (
                node_core.core.changed_partitions.copy()
            )  # the end of the round may clear and refill this set
            ready = node_core.end()
            if ready.writes:
                self._write(machine, ready.writes)
        except StoreDamaged as damage:
            self.damaged(machine, damage)
            return
        except (StorageError, PowerLoss):
            self.crash(machine)
            return
        self.checker.looked(machine, touched | node_core.core.changed_partitions)
        for to, message in ready.sends:
            self.checker.sent(machine, message)
            self._carry(machine.name, to, message)
        for answered in ready.answers:
            self._deliver(machine, answered)
        self._wake_later(machine, max(node_core.next_due() - machine.skew, self.now + 200))

    def _write(self, machine: Machine, changes: list[Change]) -> None:
        if machine.tears:
            machine.store.write(changes, sync=False)
            raise PowerLoss
        if machine.fails:
            machine.store.fail_next_write(OSError("no space left on device"))
        machine.store.write(changes, sync=not machine.node_core.core.planted_bugs.skipped_fsync)
        self.checker.wrote(machine, changes)

    def _wake_later(self, machine: Machine, due: int) -> None:
        if machine.wake_at <= self.now or due < machine.wake_at:
            machine.wake_at = due
            boot = machine.boots
            self.after(due - self.now, lambda: self._wake(machine, boot, due))

    def _wake(self, machine: Machine, boot: int, due: int) -> None:
        if machine.wake_at == due or machine.wake_at <= self.now:
            machine.wake_at = 0
            self.tick(machine, boot)

    def _carry(self, sender: str, to: str, message: AnyMessage) -> None:
        # A request goes over a connection, which may lose but does not duplicate.
        for delay in self.network.delays(sender, to, once=isinstance(message, PeerRequest)):
            self.after(delay, lambda: self._arrive(sender, to, message))

    def _arrive(self, sender: str, to: str, message: AnyMessage) -> None:
        machine = self.machines.get(to)
        if machine is None or not machine.up:
            return
        if self.now < machine.frozen_until:
            self._thaw(machine, lambda: self._arrive(sender, to, message))
        elif isinstance(message, Ping):
            # Processed in the next round: no answer depends on a ping.
            machine.inbox.append(lambda node_core: node_core.receive(sender, message))
        else:
            self.note(f"{sender}>{to} {type(message).__name__}")
            self._gather(machine, lambda node_core: node_core.receive(sender, message))

    def _gather(self, machine: Machine, work: Callable[[NodeCore], None]) -> None:
        """Process a message now, or soon, together with other messages that arrive until then."""
        gather_us = self.gather_us
        if not gather_us:
            self.round(machine, work)
            return
        machine.inbox.append(work)
        if machine.gather_at <= self.now:
            machine.gather_at = self.now + gather_us
            boot = machine.boots
            self.after(gather_us, lambda: self.tick(machine, boot))

    def _thaw(self, machine: Machine, event: Callable[[], None]) -> None:
        """Messages for a frozen machine arrive when it thaws, in any order."""
        self.after(machine.frozen_until - self.now + self.rng.randrange(3000), event)

    # --- crashes --------------------------------------------------------------------------

    def crash(self, machine: Machine, *, planned: bool = False) -> None:
        """`planned`: the machine was told to stop, and has had its time to hand over."""
        if machine.up:
            self.note(f"crash {machine.name}")
            leases = self.checker.ledger.leases
            if planned:
                leases.stopped(machine)
            else:
                leases.disturb()
            machine.up = False
            machine.tears = machine.fails = False
            machine.boots += 1
            machine.wake_at = machine.gather_at = 0
            machine.inbox.clear()
            machine.node_core.close()
            machine.store = machine.store.crash(self.rng)

    def start(self, machine: Machine) -> None:
        if machine.up or machine.gone or machine.damaged or machine.parked:
            return
        self.note(f"start {machine.name}")
        machine.up = True
        machine.frozen_until = 0
        machine.node_core = self._process(machine.name, machine.store)
        self.checker.started(machine)
        try:
            machine.node_core.recover(self.now + machine.skew)
        except StoreDamaged as damage:
            self.damaged(machine, damage)
            return
        self.checker.recovered(machine)
        self.tick(machine, machine.boots)

    def damaged(self, machine: Machine, damage: StoreDamaged) -> None:
        """A machine has found damage on its disk and has stopped.

        A new machine replaces it where no data is lost by that; otherwise the disk is restored.
        Either happens only after all messages of the damaged machine have arrived.
        """
        self.checker.that(machine.rot is not None, f"16: {machine.name} found damage: {damage}")
        self.note(f"damaged {machine.name}")
        machine.damaged = True
        self.crash(machine)
        self.after(5 * SECOND // 2, lambda: self._replace(machine))

    def _replace(self, machine: Machine) -> None:
        machine.damaged = False
        if not self._spare(machine):
            machine.restore_disk()
            self.start(machine)
            return
        self.note(f"replace {machine.name}")
        machine.gone = True
        self.join(f"{machine.name}b", witness=machine.witness)
        self._send_away(machine)

    def _send_away(self, machine: Machine) -> None:
        """Ask a member to remove the dead machine, until removed."""
        known = self.newest_view.members.get(machine.name)
        if known is None or known.state == "leaving":
            return
        self.after(SECOND, lambda: self._send_away(machine))
        member = self.member()
        if member is not None:
            request = wire.Leave(machine.name)
            self.ask(member, request, (), lambda *_: None, plain=True)

    def _spare(self, machine: Machine) -> bool:
        """True if the others hold all data of the machine, and have a quorum without it."""
        looms = [each.node_core for each in self.machines.values()]
        views = [node_core.view for node_core in looms] + [
            node_core.core.voter.vote.view for node_core in looms
        ]
        newest = self.newest_view.version
        lost = {name for name, each in self.machines.items() if each.gone} | {machine.name}
        return all(
            view.quorum(set(view.deciders) - lost)
            and all(set(place.sync) - lost for place in view.places)
            for view in views
            if view.version >= newest
        )

    # --- clients --------------------------------------------------------------------------

    def ask(
        self,
        machine: Machine,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        *,
        plain: bool,
    ) -> None:
        """A client's request; it may be lost, late, or never answered."""
        self._tokens += 1
        token = ("client", self._tokens)
        self._callers[token] = (request, on_answer)
        boot = machine.boots

        def handle(node_core: NodeCore) -> None:
            node_core.handle(request, payload, token, plain=plain)

        def arrive() -> None:
            if machine.up and self.now < machine.frozen_until:
                self._thaw(machine, arrive)
            elif machine.up:
                self.note(f"client>{machine.name} {type(request).__name__}")
                self._gather(machine, handle)

        for delay in self.network.delays("client", machine.name, once=True):
            self.after(delay, arrive)
            self.after(delay + _PATIENCE, lambda: self._give_up(machine, boot, token))

    def _give_up(self, machine: Machine, boot: int, token: object) -> None:
        """The client stops waiting, and the machine sees the connection close."""
        if token in self._callers and machine.boots == boot:
            self.round(machine, lambda node_core: node_core.cancel(token))

    def _deliver(self, machine: Machine, answered: Answered) -> None:
        request, on_answer = self._callers.pop(answered.to)
        answer, payload = answered.answer, answered.payload
        self.checker.said(machine, request, answer, payload)
        for delay in self.network.delays(machine.name, "client", once=True):
            self.after(delay, lambda: on_answer(machine, answer, payload))
