"""Staged publish over all nodes, as errands.

The app's record stands on one partition and decides; the stages are on all of them. A publish is
decided once, for good, before any partition is told; from then on it is only carried out, by the
client's own call or by the node that leads the app's partition, until every partition has done it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from weft import limits
from weft.proto import streams, wire
from weft.server.engine import app

from .errand import Errand, Pause, Question, Said, Step
from .places import of_batch
from .reserving import led
from .whole import Cluster, at_primary, everywhere, passes


def _home(cluster: Cluster, queue: str, name: str) -> int:
    return app.home(queue, name, cluster.view.catalogue)


def at_home(
    cluster: Cluster,
    request: streams.CloseStage | streams.LastPublished,
    payload: Sequence[bytes],
) -> Errand:
    """What the app's home answers alone."""
    limits.check_name("an app", request.app)
    home = _home(cluster, request.queue, request.app)
    return (yield from at_primary(cluster, home, request))


def stage(cluster: Cluster, request: streams.Stage, payload: Sequence[bytes]) -> Errand:
    while True:
        node = cluster.view.places[of_batch(cluster, request)].primary
        ((answer, frames),) = yield [Question(node, request, payload)]
        if not passes(answer):
            return answer, frames
        yield Pause()


def publish(cluster: Cluster, request: streams.Publish, payload: Sequence[bytes]) -> Errand:
    limits.check_name("an app", request.app)
    home = _home(cluster, request.queue, request.app)
    decide = streams.Decide(request.queue, request.app, request.batch, request.winners)
    while True:
        said, frames = yield from at_primary(cluster, home, decide)
        if not isinstance(said, streams.Decision):
            return said, frames
        failure = yield from carry_out(cluster, request.queue, request.app, said)
        if failure is not None:
            return failure, ()
        if said.batch == request.batch:
            return streams.Published(said.messages, False), ()


def redrive(cluster: Cluster, queue: str, name: str, decision: streams.Decision) -> Errand:
    """A decision that was not carried out to its end, by the app's own node."""
    failure = yield from carry_out(cluster, queue, name, decision)
    return failure or wire.Done(decision.messages), ()


def carry_out(
    cluster: Cluster, queue: str, name: str, decision: streams.Decision
) -> Generator[Step, list[Said], wire.Failure | None]:
    """Has every partition reveal the winners, and then the home know it."""
    left = list(range(cluster.view.catalogue))
    while left:
        nodes = led(cluster, left)
        said = yield [
            Question(
                node,
                streams.Reveal(queue, name, decision.batch, decision.tokens, partitions),
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
    done = streams.Decided(queue, name, decision.batch)
    answer, _ = yield from at_primary(cluster, home, done)
    return answer if isinstance(answer, wire.Failure) else None


def abort(cluster: Cluster, request: streams.Abort, payload: Sequence[bytes]) -> Errand:
    """Gives up every stage of a batch that is not published, and drops it where it is.

    A stage on a node that does not answer now is found and dropped later (``keeping``).
    """
    limits.check_name("an app", request.app)
    app.check_numbers(request.batch, 0, 0)
    question = streams.ListStages(request.queue, request.app, request.batch)
    tokens: set[int] = set()
    for _, (answer, frames) in (yield from everywhere(cluster, question)):
        if isinstance(answer, streams.Tokens):
            tokens.update(answer.tokens)
        elif isinstance(answer, wire.Failure) and not passes(answer):
            return answer, frames
    stages = [(request.batch, token) for token in sorted(tokens)]
    dead, frames = yield from given_up(cluster, request.queue, request.app, stages, expire=True)
    if not isinstance(dead, streams.Judged):
        return dead, frames
    given = [stages[position][1] for position in dead.dead]
    drop = streams.DropStages(request.queue, request.app, given)
    count = 0
    if given:
        for _, (answer, _) in (yield from everywhere(cluster, drop)):
            count += answer.count if isinstance(answer, wire.Done) else 0
    return wire.Done(count), ()


def given_up(
    cluster: Cluster, queue: str, name: str, stages: list[tuple[int, int]], *, expire: bool
) -> Generator[Step, list[Said], Said]:
    """Which of these stages (batch, token) the app's home says will never be published."""
    request = streams.GiveUpStages(queue, name, stages, expire)
    return (yield from at_primary(cluster, _home(cluster, queue, name), request))


def sweep(
    cluster: Cluster, queue: str, name: str, stages: list[tuple[int, int]], *, expire: bool
) -> Errand:
    """Drops, on this node, what will never be published."""
    said, frames = yield from given_up(cluster, queue, name, stages, expire=expire)
    if isinstance(said, streams.Judged) and said.dead:
        tokens = [stages[position][1] for position in said.dead]
        yield [Question(cluster.node, streams.DropStages(queue, name, tokens))]
    return said, frames
