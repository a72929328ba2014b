"""`weft cluster recover`, on the node that is asked: reports the data lost with some disks, and
continues without those disks (``weft.dht.data_loss_recovery`` has the change of the view, and why
the change is safe)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft.dht import data_loss_recovery
from weft.dht.core import Core
from weft.dht.data_loss_recovery import Copy
from weft.dht.planner import holders
from weft.dht.view import ReplicaSet
from weft.errors import InvalidArgument, Unavailable, UsageError
from weft.proto import wire
from weft.server.engine.engine import Engine

from .operation import Operation, Pause, Question, operation_of

#: Batches that a node counts for one report: other requests wait for the node's thread meanwhile.
BATCHES_MAX: Final = 20_000


class RecoveryHost(Protocol):
    @property
    def core(self) -> Core: ...
    @property
    def engine(self) -> Engine: ...


def copies(host: RecoveryHost, request: wire.Copies) -> wire.CopiesInfo:
    """This node's complete copies of partitions that it does not lead."""
    found, left = [], BATCHES_MAX
    for number in request.partitions:
        replica = host.core.replicas.get(number)
        if replica is None or replica.log.end == 0:  # also while a snapshot is being installed
            continue
        messages, counted = host.engine.count_messages(number, left)
        left -= counted
        epoch = replica.log.epoch_at(replica.log.end)
        found.append(wire.CopyInfo(number, epoch, replica.log.end, messages, left <= 0))
    return wire.CopiesInfo(found)


@operation_of(wire.Recover)
def recover(host: RecoveryHost, request: wire.Recover, payload: Sequence[bytes] = ()) -> Operation:
    """Reports the lost data; with `execute`, continues without the lost data."""
    core = host.core
    unreachable = [node for node in core.view.members if not core.reachable(node)]
    lost = _checked(core, request, unreachable)
    assumed = lost or unreachable
    numbers = data_loss_recovery.offline(core.view, assumed)
    live = [n for n in holders(core.view) if n not in unreachable and n not in assumed]
    answers = yield [Question(node, wire.Copies(numbers)) for node in live if numbers]
    infos: dict[tuple[int, str], wire.CopyInfo] = {}
    for node, (answer, _) in zip(live, answers, strict=False):
        if not isinstance(answer, wire.CopiesInfo):
            raise Unavailable(f"node {node} did not report its partitions: try again")
        infos.update({(info.partition, node): info for info in answer.copies})
    held: dict[int, list[Copy]] = {}
    for (number, node), info in infos.items():
        held.setdefault(number, []).append(Copy(info.epoch, info.end, node))
    found = data_loss_recovery.bases(core.view, assumed, held, live)
    places = [
        _lost_place(number, core.view.places[number], found.get(number), infos)
        for number in numbers
    ]
    quorum = core.view.quorum(set(core.view.deciders) - set(assumed))
    if request.execute:
        _check_execution(core, request, numbers, unreachable, quorum=quorum)
        yield from _carry_out(core, lost, found, quorum=quorum)
    report = wire.Recovery(
        assumed, unreachable, places, quorum, core.view.catalogue, request.execute
    )
    return report, ()


def _lost_place(
    number: int,
    place: ReplicaSet,
    base: tuple[int, str] | None,
    infos: dict[tuple[int, str], wire.CopyInfo],
) -> wire.LostPlace:
    copy = infos.get((number, base[1])) if base is not None else None
    if base is None or copy is None:
        return wire.LostPlace(number, list(place.sync), "", {}, False)
    return wire.LostPlace(number, list(place.sync), base[1], copy.messages, copy.more)


def _checked(core: Core, request: wire.Recover, unreachable: list[str]) -> list[str]:
    for node in request.lost:
        if node not in core.view.members:
            raise InvalidArgument(f"{node} is not a member of this cluster")
        if node not in unreachable:
            raise UsageError(
                f"node {node} is alive, or sent a message a moment ago: a node that answers is not "
                "lost. Stop it for good if its disk is, and try again after a few seconds"
            )
    if request.execute and not request.lost:
        raise InvalidArgument("name the nodes whose disks are lost")
    return list(dict.fromkeys(request.lost))


def _check_execution(
    core: Core, request: wire.Recover, numbers: list[int], unreachable: list[str], *, quorum: bool
) -> None:
    absent = [n for n in unreachable if n not in request.lost]
    if not numbers and quorum and absent:
        raise UsageError(
            "nothing to recover: no partition and no majority is lost with the named nodes alone. "
            f"Others do not answer: {', '.join(absent)}. Start them, or name them as lost if their "
            "disks are lost, too"
        )
    if not numbers and quorum:
        raise UsageError(
            "nothing to recover: every partition has a live member, and the votes are a majority. "
            "Take a dead node out with `weft cluster leave`"
        )
    if numbers != request.partitions:
        raise UsageError("the cluster has changed since the report: print the report again")
    if not [n for n in holders(core.view) if n not in request.lost and n not in unreachable]:
        raise UsageError("no live node can hold data: start one, or ask one of those that run")
    if quorum and not core.view.quorum(n for n in core.view.deciders if core.reachable(n)):
        raise UsageError(
            f"the votes are no majority while {', '.join(absent)} do not run: start them first"
        )
    if not quorum and not request.force_voters:
        raise UsageError(
            "the lost nodes are a majority of the voters, so no majority is left to decide. With "
            "--force-voters this node decides alone; do that on one node only, and only if the "
            "lost nodes never run again with their old data directories"
        )


def _carry_out(
    core: Core, lost: list[str], found: dict[int, tuple[int, str]], *, quorum: bool
) -> Operation:
    change = data_loss_recovery.recover(lost, found)
    if not quorum:
        if change(core.view) is core.view:
            raise Unavailable("the view has changed meanwhile: try again")
        core.force(data_loss_recovery.forced(core.view, core.node, change))
    while not set(lost) <= set(core.view.lost):
        if core.proposer.idle:
            core.propose_change(change)
        yield Pause()
    return wire.Done(), ()
