"""Staged publish over all nodes, as operations.

The app's record is on one partition and decides; the stages are on all partitions. The record
decides a publish once, for good, before any partition learns of the decision. From then on the
decision is only carried out, by the client's own call or by the node that leads the app's
partition, until every partition has done so.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from weft import limits
from weft.proto import pipelines, wire
from weft.server.engine import publisher

from .cluster_host import ClusterHost
from .fanout import everywhere
from .operation import Operation, Pause, Question, Said, Step, operation_of
from .primary_operations import at_primary, passes
from .reserve_operations import led
from .routing import of_batch


def _home(cluster: ClusterHost, queue: str, name: str) -> int:
    return publisher.home(queue, name, cluster.view.catalogue)


@operation_of(pipelines.CloseStage, pipelines.LastPublished)
def at_home(
    cluster: ClusterHost,
    request: pipelines.CloseStage | pipelines.LastPublished,
    payload: Sequence[bytes],
) -> Operation:
    """Asks the app's home, which answers alone."""
    limits.check_name("an app", request.app)
    home = _home(cluster, request.queue, request.app)
    return (yield from at_primary(cluster, home, request))


@operation_of(pipelines.StageBatch)
def stage(
    cluster: ClusterHost, request: pipelines.StageBatch, payload: Sequence[bytes]
) -> Operation:
    while True:
        node = cluster.view.places[of_batch(cluster, request)].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer):
            return answer, frames
        yield Pause()


@operation_of(pipelines.Publish)
def publish(
    cluster: ClusterHost, request: pipelines.Publish, payload: Sequence[bytes]
) -> Operation:
    limits.check_name("an app", request.app)
    home = _home(cluster, request.queue, request.app)
    decide = pipelines.Decide(request.queue, request.app, request.batch, request.winners)
    while True:
        said, frames = yield from at_primary(cluster, home, decide)
        if not isinstance(said, pipelines.Decision):
            return said, frames
        failure = yield from carry_out(cluster, request.queue, request.app, said)
        if failure is not None:
            return failure, ()
        if said.batch == request.batch:
            return pipelines.PublishResult(said.messages, False), ()


def redrive(cluster: ClusterHost, queue: str, name: str, decision: pipelines.Decision) -> Operation:
    """Completes an unfinished decision, on the app's own node."""
    failure = yield from carry_out(cluster, queue, name, decision)
    return failure or wire.Done(decision.messages), ()


def carry_out(
    cluster: ClusterHost, queue: str, name: str, decision: pipelines.Decision
) -> Generator[Step, list[Said], wire.Failure | None]:
    """Makes every partition reveal the winners, then reports completion to the home."""
    left = list(range(cluster.view.catalogue))
    while left:
        nodes = led(cluster, left)
        said = yield [
            Question(
                node,
                pipelines.Reveal(queue, name, decision.batch, decision.tokens, partitions),
            )
            for node, partitions in nodes.items()
        ]
        left = []
        for partitions, (answer, _) in zip(nodes.values(), said, strict=True):
            if isinstance(answer, wire.Failure) and not passes(answer):
                return answer
            if not isinstance(answer, wire.Done):
                left += partitions
        if left:
            yield Pause()
    home = _home(cluster, queue, name)
    done = pipelines.Decided(queue, name, decision.batch)
    answer, _ = yield from at_primary(cluster, home, done)
    return answer if isinstance(answer, wire.Failure) else None


@operation_of(pipelines.Abort)
def abort(cluster: ClusterHost, request: pipelines.Abort, payload: Sequence[bytes]) -> Operation:
    """Gives up every stage of an unpublished batch, and drops the stages on all nodes.

    A stage on a node without an answer is found and dropped later (``reconciler``).
    """
    limits.check_name("an app", request.app)
    publisher.check_numbers(request.batch, 0, 0)
    question = pipelines.ListStages(request.queue, request.app, request.batch)
    tokens: set[int] = set()
    for _, (answer, frames) in (yield from everywhere(cluster, question)):
        if isinstance(answer, pipelines.StageTokens):
            tokens.update(answer.tokens)
        elif isinstance(answer, wire.Failure) and not passes(answer):
            return answer, frames
    stages = [(request.batch, token) for token in sorted(tokens)]
    dead, frames = yield from given_up(cluster, request.queue, request.app, stages, expire=True)
    if not isinstance(dead, pipelines.Judged):
        return dead, frames
    given = [stages[position][1] for position in dead.dead]
    drop = pipelines.DropStages(request.queue, request.app, given)
    count = 0
    if given:
        for _, (answer, _) in (yield from everywhere(cluster, drop)):
            count += answer.count if isinstance(answer, wire.Done) else 0
    return wire.Done(count), ()


def given_up(
    cluster: ClusterHost, queue: str, name: str, stages: list[tuple[int, int]], *, expire: bool
) -> Generator[Step, list[Said], Said]:
    """Asks the app's home which of the stages (batch, token) will never be published."""
    request = pipelines.GiveUpStages(queue, name, stages, expire)
    return (yield from at_primary(cluster, _home(cluster, queue, name), request))


def sweep(
    cluster: ClusterHost, queue: str, name: str, stages: list[tuple[int, int]], *, expire: bool
) -> Operation:
    """Drops stages on this node that will never be published."""
    said, frames = yield from given_up(cluster, queue, name, stages, expire=expire)
    if isinstance(said, pipelines.Judged) and said.dead:
        tokens = [stages[position][1] for position in said.dead]
        yield [Question(cluster.node, pipelines.DropStages(queue, name, tokens))]
    return said, frames
