"""The simulated world: machines with disks, a network, clients, and one virtual clock.

The node code is the real one (``weft.server.loom``: the queue engine and the cluster core); only
the network, the disk and the clock are not. Everything random comes from one generator, so a seed
is a run: the same seed gives the same events, and ``digest`` says so.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Sequence

from weft.dht import replica, sending
from weft.dht.core import Pace, decode_view
from weft.dht.messages import AnyMessage, Ask, Ping, Reply
from weft.dht.view import Member, View
from weft.errors import StorageError, StoreDamaged
from weft.persistence.memory import MemoryStore
from weft.persistence.store import Change
from weft.proto import wire
from weft.server.engine.state import Answered
from weft.server.loom.errand import Pause
from weft.server.loom.loom import Loom

from .check import Checker
from .machine import Machine, PowerLoss
from .network import Network, Weather
from .options import Options

SECOND = 1_000_000
START = 1_000_000 * SECOND
PACE = Pace(ping=400_000, suspect=1_000_000, again=200_000, backoff=40_000, grace=20 * SECOND)
#: The limits of a cluster with large logs, made small, so that they are met here.
for _module, _name, _small in (
    (replica, "ENTRIES_MAX", 8),
    (replica, "KEEP_MAX", 24),
    (replica, "APPLY_MAX", 8),
    (sending, "PIECE_BYTES", 400),
):
    setattr(_module, _name, _small)
#: Who asks in vain waits longer here: a run has few rounds, and they are for other things.
setattr(Pause.__new__, "__defaults__", (120_000,))  # noqa: B010

#: A client that was not answered for so long has gone.
_PATIENCE = 2 * SECOND


def _nothing(loom: Loom) -> None:
    """A round without anything to do but what is due."""


OnAnswer = Callable[[Machine, wire.AnyAnswer, Sequence[bytes]], None]


class World:
    def __init__(
        self, seed: int, options: Options | None = None, mutant: str = "", *, whole: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.options = options or Options.drawn(seed, self.rng, whole=whole)
        self.now = START
        #: What comes within such a time of each other is heard in one round.
        self.gather_us = self.options.calm_gather_us
        self._mutant = mutant
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self.events_count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.story: list[str] = []
        self.network = Network(self.rng, Weather())
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
        first.loom.found(Member("n0", "n0"), self.options.learners)
        first.loom.recover(self.now + first.skew)
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
        """A new machine asks any member to let it in, until it is."""
        machine = self.add_machine(name, witness=witness)
        machine.loom.recover(self.now + machine.skew)
        self.tick(machine, machine.boots)
        self._ask_in(machine)

    def _ask_in(self, machine: Machine) -> None:
        if machine.gone or machine.loom.view.members:
            return
        self.after(SECOND, lambda: self._ask_in(machine))
        member = self.member()
        if member is not None and machine.up:
            name = machine.name
            request = wire.Join(name, "", "", name, name, machine.witness)

            def joined(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
                if isinstance(answer, wire.Joined) and machine.up:
                    view = decode_view(answer.view)
                    self.round(machine, lambda loom: loom.core.learn(view))

            self.ask(member, request, (), joined, plain=True)

    def _process(self, name: str, store: MemoryStore) -> Loom:
        rng = self.rng
        loom = Loom(
            name, "simulated", store, partitions=self.options.partitions,
            cache_bytes=1 << 16, entropy=lambda: rng.getrandbits(62) + 1, pace=PACE,
        )  # fmt: skip
        if self._mutant:
            assert hasattr(loom.core.mutant, self._mutant), f"no mutant {self._mutant}"
            setattr(loom.core.mutant, self._mutant, True)
        return loom

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
        """Any machine that runs and is in a cluster."""
        up = [m for m in self.machines.values() if m.up and m.name in m.loom.view.members]
        return self.rng.choice(up) if up else None

    @property
    def newest_view(self) -> View:
        return max((m.loom.view for m in self.machines.values()), key=lambda view: view.version)

    def tick(self, machine: Machine, boot: int) -> None:
        if machine.boots == boot and machine.up:
            if self.now < machine.frozen_until:
                self.after(machine.frozen_until - self.now, lambda: self.tick(machine, boot))
            else:
                self.round(machine, _nothing)

    def round(self, machine: Machine, work: Callable[[Loom], None]) -> None:
        """What a driver does: work, write, then say."""
        if not machine.up or self.now < machine.frozen_until:
            return
        loom = machine.loom
        try:
            loom.begin(self.now + machine.skew)
            if machine.inbox:
                inbox, machine.inbox = machine.inbox, []
                for came in inbox:
                    came(loom)
            work(loom)
            touched = loom.core.stirred.copy()  # its end may empty this, and fill it again
            changes = loom.end()
            if changes:
                self._write(machine, changes)
        except StoreDamaged as damage:
            self.damaged(machine, damage)
            return
        except (StorageError, PowerLoss):
            self.crash(machine)
            return
        self.checker.looked(machine, touched | loom.core.stirred)
        out = loom.deliver()
        for to, message in out.sends:
            if isinstance(message, Reply):
                self.checker.replied(machine, message)
            self._carry(machine.name, to, message)
        for answered in out.answers:
            self._deliver(machine, answered)
        self._wake_later(machine, max(loom.next_due() - machine.skew, self.now + 200))

    def _write(self, machine: Machine, changes: list[Change]) -> None:
        if machine.tears:
            machine.store.write(changes, sync=False)
            raise PowerLoss
        if machine.fails:
            machine.store.fail_next_write(OSError("no space left on device"))
        machine.store.write(changes, sync=not machine.loom.core.mutant.skipped_fsync)
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
        # A question goes over a connection, which loses but does not double.
        for delay in self.network.delays(sender, to, once=isinstance(message, Ask)):
            self.after(delay, lambda: self._arrive(sender, to, message))

    def _arrive(self, sender: str, to: str, message: AnyMessage) -> None:
        machine = self.machines.get(to)
        if machine is None or not machine.up:
            return
        if self.now < machine.frozen_until:
            self._thaw(machine, lambda: self._arrive(sender, to, message))
        elif isinstance(message, Ping):
            # It is heard in the next round: nobody waits for it.
            machine.inbox.append(lambda loom: loom.receive(sender, message))
        else:
            self.note(f"{sender}>{to} {type(message).__name__}")
            self._gather(machine, lambda loom: loom.receive(sender, message))

    def _gather(self, machine: Machine, work: Callable[[Loom], None]) -> None:
        """Something has come: it is heard now, or soon, with whatever else comes until then."""
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
        """What came for a frozen machine is there when it goes on, in any order."""
        self.after(machine.frozen_until - self.now + self.rng.randrange(3000), event)

    # --- crashes --------------------------------------------------------------------------

    def crash(self, machine: Machine) -> None:
        if machine.up:
            self.note(f"crash {machine.name}")
            machine.up = False
            machine.tears = machine.fails = False
            machine.boots += 1
            machine.wake_at = machine.gather_at = 0
            machine.inbox.clear()
            machine.loom.close()
            machine.store = machine.store.crash(self.rng)

    def start(self, machine: Machine) -> None:
        if machine.up or machine.gone or machine.damaged:
            return
        self.note(f"start {machine.name}")
        machine.up = True
        machine.frozen_until = 0
        machine.loom = self._process(machine.name, machine.store)
        self.checker.started(machine)
        try:
            machine.loom.recover(self.now + machine.skew)
        except StoreDamaged as damage:
            self.damaged(machine, damage)
            return
        self.checker.recovered(machine)
        self.tick(machine, machine.boots)

    def damaged(self, machine: Machine, damage: StoreDamaged) -> None:
        """A machine has found that its disk is not whole, and has stopped.

        It is replaced by a new one where that loses nothing; else its disk is restored. Not before
        everything that it has said has arrived.
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
        """Asks that a dead member leaves, until it has."""
        known = self.newest_view.members.get(machine.name)
        if known is None or known.state == "leaving":
            return
        self.after(SECOND, lambda: self._send_away(machine))
        member = self.member()
        if member is not None:
            request = wire.Leave(machine.name)
            self.ask(member, request, (), lambda *_: None, plain=True)

    def _spare(self, machine: Machine) -> bool:
        """Whether the others hold all that it holds, and can decide without it."""
        looms = [each.loom for each in self.machines.values()]
        views = [loom.view for loom in looms] + [loom.core.voter.vote.view for loom in looms]
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

        def handle(loom: Loom) -> None:
            loom.handle(request, payload, token, plain=plain)

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
        """Nobody waits any longer, and the machine hears that the connection is closed."""
        if token in self._callers and machine.boots == boot:
            self.round(machine, lambda loom: loom.cancel(token))

    def _deliver(self, machine: Machine, answered: Answered) -> None:
        request, on_answer = self._callers.pop(answered.to)
        answer, payload = answered.answer, answered.payload
        self.checker.said(machine, request, answer, payload)
        for delay in self.network.delays(machine.name, "client", once=True):
            self.after(delay, lambda: on_answer(machine, answer, payload))
