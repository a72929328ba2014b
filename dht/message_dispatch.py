"""The dispatch of peers' messages to the parts of a core: one handler for each type of message.

A handler checks nothing about the sender: ``Core.receive`` has done so. Every handler is
idempotent, because a message may be lost, delayed, duplicated or reordered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, get_args

from .messages import (
    Accept,
    Accepted,
    Announce,
    AppendEntries,
    Commits,
    Confirm,
    Confirmed,
    Install,
    PartitionMessage,
    Ping,
    Prepare,
    Promise,
    ProposalRejected,
)

if TYPE_CHECKING:
    from .core import Core


def _ping(core: Core, sender: str, message: Ping) -> None:
    """Notes the sender's disk; of two nodes, the one with the older view receives the newer one."""
    (core.full_peers.add if message.full else core.full_peers.discard)(sender)
    if message.version < core.view.version:
        core.send(sender, Announce(core.view))
    elif message.version > core.view.version:
        core.send(sender, Ping(core.view.version))


def _announce(core: Core, sender: str, message: Announce) -> None:
    core.learn(message.view)


def _prepare(core: Core, sender: str, message: Prepare) -> None:
    core.send(sender, core.voter.prepare(message))


def _accept(core: Core, sender: str, message: Accept) -> None:
    core.send(sender, core.voter.accept(message))


def _promise(core: Core, sender: str, message: Promise) -> None:
    core.proposer.promise(sender, message)


def _accepted(core: Core, sender: str, message: Accepted) -> None:
    core.proposer.accepted(sender, message)


def _proposal_rejected(core: Core, sender: str, message: ProposalRejected) -> None:
    core.proposer.reject(message)


def _commits(core: Core, sender: str, message: Commits) -> None:
    for number, epoch, lsn in message.commits:
        replica = core.replicas.get(number)
        if replica is not None:
            replica.follower.receive_commit_index(epoch, lsn)
            core.note_commit(replica)


def _confirm(core: Core, sender: str, message: Confirm) -> None:
    core.leadership_checks.asked(sender, message)


def _confirmed(core: Core, sender: str, message: Confirmed) -> None:
    core.leadership_checks.answered(sender, message)


def _partition(core: Core, sender: str, message: PartitionMessage) -> None:
    if not 0 <= message.partition <= core.catalogue:
        return
    replica = core.replica(message.partition)
    if isinstance(message, AppendEntries | Install):
        place = replica.place
        if message.epoch <= place.epoch and not place.holds(core.node):
            return  # this node is no longer a learner
        if message.since > core.view.version:
            # A newer view may make this node discard the partition, so acknowledge nothing before
            # learning the newer view.
            core.send(sender, Ping(core.view.version))
            return
    core.busy.add(message.partition)
    core.changed_partitions.add(message.partition)
    replica.receive(sender, message)
    core.note_commit(replica)


HANDLERS: Final[dict[type, Callable[..., None]]] = {
    Ping: _ping,
    Announce: _announce,
    Prepare: _prepare,
    Accept: _accept,
    Promise: _promise,
    Accepted: _accepted,
    ProposalRejected: _proposal_rejected,
    Commits: _commits,
    Confirm: _confirm,
    Confirmed: _confirmed,
    **dict.fromkeys(get_args(PartitionMessage), _partition),
}
