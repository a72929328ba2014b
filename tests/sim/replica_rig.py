"""A few replicas of one partition, driven message by message.

Directed schedules reach the states that a random schedule reaches too rarely. Each replica has a
disk of its own. The rig holds a replica's messages until the test releases them, and releases them
only after the changes they depend on are written, as a driver does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.dht.log import Changes
from weft.dht.messages import AnyMessage, EntriesAppended, PartitionMessage
from weft.dht.planted_bugs import PlantedBugs
from weft.dht.replica import Replica
from weft.dht.role import Role
from weft.dht.view import ReplicaSet
from weft.persistence import layout, table_layout
from weft.persistence.memory import MemoryStore
from weft.persistence.overlay import Overlay

PARTITION: Final = 0
CATALOGUE: Final = 1

Drops = Callable[[str, str, AnyMessage], bool]


def put(name: str, value: bytes = b"v") -> Changes:
    """An entry that writes one value of the table."""
    key = table_layout.key(PARTITION, name)
    return Changes([(key, layout.seal(key, value))], [], [])


class Player:
    """One replica, its disk and its outgoing messages."""

    def __init__(self, name: str, store: MemoryStore, planted_bugs: PlantedBugs) -> None:
        self.name = name
        self.store = store
        self.overlay = Overlay(store)
        self.sent: list[tuple[str, AnyMessage]] = []
        self.later: dict[str, AnyMessage] = {}
        self.dead: set[str] = set()
        self.replaced_count = 0
        self.replica = Replica(PARTITION, name, self.overlay, CATALOGUE, self)
        self.replica.planted_bugs = planted_bugs

    # --- ``ReplicaHost`` ------------------------------------------------------------------

    def send(self, to: str, message: AnyMessage) -> None:
        self.sent.append((to, message))

    def send_later(self, to: str, message: EntriesAppended) -> None:
        self.later[to] = message

    def reachable(self, node: str) -> bool:
        return node not in self.dead

    def may_install(self, size: int) -> bool:
        return True

    def applied(self, partition: int, lsn: int, changes: Changes) -> None:
        assert partition == PARTITION

    def replaced(self, partition: int) -> None:
        self.replaced_count += 1

    # --- actions of a driver --------------------------------------------------------------

    def write(self, *, apply: bool = True) -> list[tuple[str, AnyMessage]]:
        """End the round: make the changes durable, then return the messages to send."""
        if apply:
            self.replica.apply()
        self.store.write(self.overlay.take(), sync=True)
        sent, self.sent = self.sent, []
        return sent

    def state(self) -> dict[bytes, bytes]:
        """The applied state, as on the disk."""
        rows: dict[bytes, bytes] = {}
        for start, stop in layout.state_ranges(PARTITION, CATALOGUE):
            rows.update(self.store.scan(start, stop))
        return rows


class ReplicaRig:
    def __init__(self, names: str, planted_bugs: PlantedBugs | None = None) -> None:
        self.planted_bugs = planted_bugs or PlantedBugs()
        self.players = {name: Player(name, MemoryStore(name), self.planted_bugs) for name in names}
        self.in_flight: list[tuple[str, str, AnyMessage]] = []

    def __getitem__(self, name: str) -> Replica:
        return self.players[name].replica

    def place(self, epoch: int, sync: str, learners: str = "", *, of: str = "", min_sync: int = 2
              ) -> None:  # fmt: skip
        """Publish a replica set: to every replica, or only to the replicas in `of`."""
        for name in of or self.players:
            self.players[name].replica.learn(
                ReplicaSet(epoch, tuple(sync), tuple(learners)), min_sync
            )
            self.end(name)

    def propose(self, name: str, *entries: Changes) -> int:
        lsn = 0
        for changes in entries:
            bodies: list[tuple[bytes, bytes | None]] = [
                (key, layout.seal(key, b"payload")) for key in changes.bodies
            ]
            lsn = self[name].primary.propose(changes, bodies)
        self.end(name)
        return lsn

    def end(self, name: str, *, apply: bool = True) -> None:
        sent = self.players[name].write(apply=apply)
        self.in_flight += [(name, to, message) for to, message in sent]

    def hear(self, sender: str, to: str, message: AnyMessage) -> None:
        assert isinstance(message, PartitionMessage)
        self.players[to].replica.receive(sender, message)
        self.end(to)

    def play(self, drop: Drops = lambda *_: False, limit: int = 10_000) -> None:
        """Deliver all messages in order, until no replica has one to send."""
        for _ in range(limit):
            if not self.in_flight:
                return
            sender, to, message = self.in_flight.pop(0)
            if to in self.players and not drop(sender, to, message):
                self.hear(sender, to, message)
        raise AssertionError("they talk without end")

    def remind(self, name: str) -> None:
        """Resend, as the core does periodically, and send the commit index.

        Every replica pings, and the messages that wait for a ping arrive with it.
        """
        for each in self.players.values():
            later, each.later = each.later, {}
            for to, message in later.items():
                self.hear(each.name, to, message)
        replica = self.players[name].replica
        replica.resend()
        replica.log_sync.send_to_learners()
        replica.log_sync.send_to_learners()  # entries that existed at the last ping
        self.end(name)
        for follower in replica.followers:
            if (lsn := replica.log_sync.due_commit(follower)) is not None:
                self.players[follower].replica.follower.receive_commit_index(
                    replica.place.epoch, lsn
                )
                self.end(follower)

    def restart(self, name: str) -> None:
        """Crash and restart: unwritten changes and all memory are lost."""
        before = self.players[name]
        self.players[name] = Player(name, before.store.crash(), self.planted_bugs)

    def active(self, sync: str = "ab", learners: str = "", *, epoch: int = 1, min_sync: int = 2
               ) -> Replica:  # fmt: skip
        """Make the first member of the sync set the active primary."""
        self.place(epoch, sync, learners, min_sync=min_sync)
        self.play()
        assert self[sync[0]].role is Role.ACTIVE
        return self[sync[0]]
