"""Routes requests: to the engine, to an answer of the node core, or to an operation. Pure.

The verb table (``proto.verbs``) has the facts; the router only executes them:

| route of the verb | on a node that is one of several                          | on a single node |
|-------------------|-----------------------------------------------------------|------------------|
| NODE              | this node answers                                         | the same         |
| PRIMARY           | smart client: this node answers, or refuses as not primary| this node answers|
|                   | plain client: an operation asks the primaries             |                  |
| SEARCH            | smart client: this node answers; plain: ``remote_pop``    | this node answers|
| CLUSTER           | an operation asks all nodes                               | this node answers|
| OPERATION         | an operation                                              | the same         |
| INTERNAL          | refused from a client; another node's is answered here    | the same         |

The driver answers verbs with the route DRIVER before they reach the router.

Invariant: a node answers a request for a partition only if it leads the partition (``refusal``),
and a request for a queue only if its catalogue is known to have the queue's latest changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from weft.dht.messages import PeerReply, PeerRequest, ReadyAnnouncement
from weft.dht.view import Member
from weft.proto import wire
from weft.proto.verb import Partitions, Route
from weft.proto.verbs import INTERNAL, VERBS, WITH_PAYLOAD, requests_where
from weft.server.engine.commit import arrivals_of
from weft.server.engine.engine import Engine
from weft.server.engine.handlers import handles
from weft.server.engine.state import EngineState

from . import (
    data_loss_recovery,
    fanout,
    membership,
    publish_operations,
    reserve_operations,
    table_operations,
    topic_operations,
)  # fmt: skip
from .backup_waits import BackupWaits
from .catalogue_operations import refreshed
from .catalogue_sync import CatalogueSync
from .commit_members import CommitMembers
from .metadata_list import MetadataLists
from .node_verbs import answer_of
from .operation import LIFE_US, Inner, Operation, PeerCaller, operation_of
from .operations import Operations
from .primary_operations import at_its_primary
from .refusal import Leader, refusal
from .remote_pop import RemotePop
from .request_checks import check_of
from .routing import places
from .status import ViewReport

#: Modules with operations: the import registers the operations of each.
_MODULES: Final = (
    data_loss_recovery, fanout, membership, publish_operations, reserve_operations,
    table_operations, topic_operations,
)  # fmt: skip
_ROUTES: Final = {request: verb.route for request, verb in VERBS.items()}
_OPERATIONS: Final = operation_of.by_request
_ANSWERS: Final = answer_of.by_request
_CHECKS: Final = check_of.by_request
#: Requests that name a queue which must exist.
_NAMES_QUEUE: Final = requests_where(lambda verb: verb.names_queue)
#: New batches, on the partition of the batch or of an ordered queue.
_BATCHES: Final = requests_where(lambda verb: verb.payload and verb.partitions is Partitions.BATCH)
#: Requests that the engine answers alone on a node which is its whole cluster.
ENGINE_ALONE: Final = frozenset(
    request
    for request, route in _ROUTES.items()
    if route in (Route.PRIMARY, Route.SEARCH, Route.CLUSTER)
    and request in handles.by_request
    and request not in _CHECKS
)
#: A caller, its request, the payload, and the caller's identity, which the node core ignores.
ClientRequest = tuple[object, wire.AnyRequest, Sequence[bytes], object]
#: Requests that touch nothing but queues and rows of the engine, and leave no work to other parts;
#: and one that changes nothing (`Engine.foreign`).
SHORT_ROUND: Final = ENGINE_ALONE & {
    wire.Push, wire.Multicast, wire.PushTopic, wire.Pop, wire.Ack, wire.Nack, wire.Extend,
    wire.Peek, wire.Commit, wire.Move,
    wire.Put, wire.RemoveKey, wire.AppendKey, wire.SwapKey, wire.Lookup,
    wire.InsertMany, wire.LookupMany, wire.RemoveMany,
} | {wire.GetView}  # fmt: skip
_NOT_YET: Final = wire.Failure(
    "UNAVAILABLE", "this node is not a member of its cluster yet: retry, or ask another node", True
)

_LEFT: Final = wire.Failure(
    "UNAVAILABLE", "this node has left its cluster: ask another node, and stop this one", True
)


class RouterHost(Leader, Protocol):
    """The node as seen by routing and operations."""

    @property
    def cluster(self) -> str: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def me(self) -> Member | None: ...


class RequestRouter:
    def __init__(
        self,
        host: RouterHost,
        engine: Engine,
        operations: Operations,
        metadata_lists: MetadataLists,
        catalogue_sync: CatalogueSync,
        backup_waits: BackupWaits,
        remote_pop: RemotePop,
    ) -> None:
        self.host = host
        self.engine = engine
        self.metadata_lists = metadata_lists
        self.catalogue_sync = catalogue_sync
        self.backup_waits = backup_waits
        self._operations = operations
        self._remote_pop = remote_pop
        self.view_report = ViewReport(host)
        engine.foreign = {wire.GetView: self._answer_view}
        self._commit_members = CommitMembers(engine)

    def handle(
        self, request: wire.AnyRequest, payload: Sequence[bytes], to: object, *, plain: bool
    ) -> None:
        """Handles a client request. A plain client knows one node; a smart client, the view."""
        failure = self._unfit(request, payload)
        if failure is not None:
            self.engine.answer(to, failure)
        elif (operation := self._operation(request, payload, plain=plain)) is None:
            self.direct(request, payload, to)
        else:
            waits = isinstance(request, wire.Pop | wire.Room | wire.WatchKeys)
            wait_ms: int = request.wait_ms if waits else 0  # type: ignore[attr-defined]
            self._start(operation, to, wait_ms * 1000 + LIFE_US)

    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        """Answers a request on this node alone, if possible."""
        if not (isinstance(to, Inner) and to.fresh):
            if self._needs_catalogue_sync(request):
                self._start(refreshed(self.host, request, payload), to, LIFE_US)
                return
            if isinstance(request, wire.Commit) and not self._commit_members.confirmed(self.host):
                self._start(self._commit_members.asked(self.host, request, payload), to, LIFE_US)
                return
        failure = refusal(self.host, request)
        if failure is not None:
            self.engine.answer(to, failure)
        elif (answer := _ANSWERS.get(type(request))) is not None:
            answer(self, request, payload, to)
        else:
            self.engine.handle(request, payload, to)

    def receive(self, sender: str, message: PeerRequest | PeerReply | ReadyAnnouncement) -> None:
        """Takes a message about queues from another node."""
        match message:
            case PeerRequest():
                node, rid = message.reply_to or (sender, message.rid)
                if node in self.host.view.members:
                    caller = PeerCaller(node, rid, forwarded=message.reply_to is not None)
                    self.direct(message.request, message.payload, caller)
            case PeerReply():
                self._operations.replied(sender, message)
            case ReadyAnnouncement():
                self.metadata_lists.receive(sender, message)

    def start(self, operation: Operation, to: object) -> None:
        """Starts an operation that answers a request of a client or of a node."""
        self._start(operation, to, LIFE_US)

    def _answer_view(self, state: EngineState, request: wire.GetView, to: object) -> None:
        state.answer(to, self.view_report.info())

    def _start(self, operation: Operation, to: object, life_us: int) -> None:
        self._operations.start(operation, to, self.host.now + life_us)

    def _operation(
        self, request: wire.AnyRequest, payload: Sequence[bytes], *, plain: bool
    ) -> Operation | None:
        """The operation for a client's request; None if this node answers directly."""
        kind = type(request)
        route = _ROUTES[kind]
        if route is not Route.OPERATION:
            if len(self.host.view.members) < 2:
                return None
            if route is Route.SEARCH:
                assert isinstance(request, wire.Pop)
                return self._remote_pop.pop(request, payload) if plain else None
            if isinstance(request, wire.Multicast | wire.PushTopic):
                if not plain and self.host.destinations.enabled and not self._is_foreign(request):
                    return None
            elif route is Route.PRIMARY:
                if not plain and not self._is_astray(request):
                    return None
            elif route is not Route.CLUSTER:
                return None
        return _OPERATIONS.get(kind, at_its_primary)(self.host, request, payload)

    def _unfit(self, request: wire.AnyRequest, payload: Sequence[bytes]) -> wire.Failure | None:
        """Checks a client request before any handler runs; returns the failure, or None."""
        kind, words = type(request), None
        if len(payload) != (kind in WITH_PAYLOAD):
            words = f"{len(payload)} payload frames do not go with this verb"
        elif kind in INTERNAL:
            words = "this request is internal to the cluster"
        elif (check := _CHECKS.get(kind)) is not None:
            words = check(request, self.host.core.catalogue)
        if words is not None:
            return wire.Failure("INVALID_ARGUMENT", words, False)
        if self.host.node in self.host.view.members:
            return None
        return _LEFT if self.host.node in self.host.view.removed else _NOT_YET

    def _is_astray(self, request: wire.AnyRequest) -> bool:
        """True if a smart client sent a batch here by mistake: the client does not know yet that
        the queue is ordered, or that the queue is no longer ordered."""
        if type(request) not in _BATCHES:
            return False
        queue: str = request.queue  # type: ignore[attr-defined]
        doubtful = self.host.is_ordered(queue) or self.metadata_lists.keeps(queue)
        return doubtful and places(self.host, request)[0] not in self.host.led

    def _is_foreign(self, request: wire.Multicast | wire.PushTopic) -> bool:
        """True if this node cannot answer: a smart client guesses the partition, because it does
        not know which destinations are ordered or grouped."""
        place = self.host.destinations.place_of(request)
        return place is not None and place not in self.host.led

    def _needs_catalogue_sync(self, request: wire.AnyRequest) -> bool:
        """True if the request names a queue, and this node may lack changes of that queue."""
        known: bool
        if type(request) in _NAMES_QUEUE:
            name: str | None = request.queue  # type: ignore[attr-defined]
            known = name is None or name in self.engine.queues
            named = name is not None
        elif isinstance(request, wire.Commit):
            names = _queues_of(request)
            known = names <= self.engine.queues.keys()
            named = bool(names)
        elif isinstance(request, wire.Move):
            known, named = {request.queue, request.to} <= self.engine.queues.keys(), True
        elif isinstance(request, wire.Deliver | wire.CoordinateMulticast | wire.ProposeMulticast):
            known = self.engine.commits.knows(request.queues)
            named = bool(request.queues)
        elif isinstance(request, wire.Multicast | wire.PushTopic):
            known, named = self.host.destinations.are_known(request), True
        else:
            return False
        unsure = named and (not known or self.catalogue_sync.doubtful)
        return unsure and self.host.core.catalogue not in self.host.led


def _queues_of(request: wire.Commit) -> set[str]:
    queues = {each.queue for each in request.acks} | {each.push.queue for each in request.pushes}
    return queues | {each.queue for each in arrivals_of(request)}
