"""A few replicas of one partition, played message by message: what a random schedule reaches too
rarely is reached here on purpose.

Each has a disk of its own. What a replica says is kept until the test lets it go out, and it goes
out only after what it rests on was written, as a driver would have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.dht.log import Changes
from weft.dht.messages import AnyMessage, Appended
from weft.dht.mutant import Mutant
from weft.dht.replica import Replica
from weft.dht.role import Role
from weft.dht.view import Place
from weft.persistence import layout
from weft.persistence.memory import MemoryStore
from weft.persistence.overlay import Overlay

PARTITION: Final = 0
CATALOGUE: Final = 1

Drops = Callable[[str, str, AnyMessage], bool]


def put(name: str, value: bytes = b"v") -> Changes:
    """An entry that writes one value of the table."""
    key = layout.table(PARTITION, name)
    return Changes([(key, layout.seal(key, value))], [], [])


class Player:
    """One replica, its disk and what it has said."""

    def __init__(self, name: str, store: MemoryStore, mutant: Mutant) -> None:
        self.name = name
        self.store = store
        self.overlay = Overlay(store)
        self.sent: list[tuple[str, AnyMessage]] = []
        self.later: dict[str, AnyMessage] = {}
        self.dead: set[str] = set()
        self.replaced_count = 0
        self.replica = Replica(PARTITION, name, self.overlay, CATALOGUE, self)
        self.replica.mutant = mutant

    # --- ``replica.Outbox`` ---------------------------------------------------------------

    def send(self, to: str, message: AnyMessage) -> None:
        self.sent.append((to, message))

    def send_later(self, to: str, message: Appended) -> None:
        self.later[to] = message

    def alive(self, node: str) -> bool:
        return node not in self.dead

    def may_install(self, size: int) -> bool:
        return True

    def applied(self, partition: int, lsn: int, changes: Changes) -> None:
        assert partition == PARTITION

    def replaced(self, partition: int) -> None:
        self.replaced_count += 1

    # --- what a driver does ---------------------------------------------------------------

    def write(self, *, apply: bool = True) -> list[tuple[str, AnyMessage]]:
        """The round ends: its changes are durable, and what it says may go out."""
        if apply:
            self.replica.apply()
        self.store.write(self.overlay.take(), sync=True)
        sent, self.sent = self.sent, []
        return sent

    def state(self) -> dict[bytes, bytes]:
        """What is applied, as it is on the disk."""
        rows: dict[bytes, bytes] = {}
        for start, stop in layout.state_ranges(PARTITION, CATALOGUE):
            rows.update(self.store.scan(start, stop))
        return rows


class Troupe:
    def __init__(self, names: str, mutant: Mutant | None = None) -> None:
        self.mutant = mutant or Mutant()
        self.players = {name: Player(name, MemoryStore(name), self.mutant) for name in names}
        self.flying: list[tuple[str, str, AnyMessage]] = []

    def __getitem__(self, name: str) -> Replica:
        return self.players[name].replica

    def place(self, epoch: int, sync: str, learners: str = "", *, of: str = "", min_sync: int = 2
              ) -> None:  # fmt: skip
        """The view says where the partition is: everyone hears it, or only those named."""
        for name in of or self.players:
            self.players[name].replica.learn(Place(epoch, tuple(sync), tuple(learners)), min_sync)
            self.end(name)

    def propose(self, name: str, *entries: Changes) -> int:
        lsn = 0
        for changes in entries:
            bodies: list[tuple[bytes, bytes | None]] = [
                (key, layout.seal(key, b"payload")) for key in changes.bodies
            ]
            lsn = self[name].propose(changes, bodies)
        self.end(name)
        return lsn

    def end(self, name: str, *, apply: bool = True) -> None:
        sent = self.players[name].write(apply=apply)
        self.flying += [(name, to, message) for to, message in sent]

    def hear(self, sender: str, to: str, message: AnyMessage) -> None:
        replica = self.players[to].replica
        getattr(replica, type(message).__name__.lower())(sender, message)
        self.end(to)

    def play(self, drop: Drops = lambda *_: False, limit: int = 10_000) -> None:
        """Everything that is said arrives, in order, until nobody has anything to say."""
        for _ in range(limit):
            if not self.flying:
                return
            sender, to, message = self.flying.pop(0)
            if to in self.players and not drop(sender, to, message):
                self.hear(sender, to, message)
        raise AssertionError("they talk without end")

    def remind(self, name: str) -> None:
        """It is time to say things again, and to tell what is committed, as the core does; all
        ping, and what was to go with that arrives."""
        for each in self.players.values():
            later, each.later = each.later, {}
            for to, message in later.items():
                self.hear(each.name, to, message)
        replica = self.players[name].replica
        replica.say_again()
        replica.feed()
        replica.feed()  # what was there at the last ping
        self.end(name)
        for follower in replica.followers:
            if (lsn := replica.news(follower)) is not None:
                self.players[follower].replica.hear_commit(replica.place.epoch, lsn)
                self.end(follower)

    def restart(self, name: str) -> None:
        """A crash: what was not written is gone, and so is all that was in memory."""
        before = self.players[name]
        self.players[name] = Player(name, before.store.crash(), self.mutant)

    def active(self, sync: str = "ab", learners: str = "", *, epoch: int = 1, min_sync: int = 2
               ) -> Replica:  # fmt: skip
        """The first of a sync set leads it."""
        self.place(epoch, sync, learners, min_sync=min_sync)
        self.play()
        assert self[sync[0]].role is Role.ACTIVE
        return self[sync[0]]
