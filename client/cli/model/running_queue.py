"""`weft model compare` and `weft model advise`: running stochastic queues beside the simulator."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from weft.client.cli import options, output
from weft.errors import InvalidArgument, WeftError
from weft.models import running_queue
from weft.models.chart import Bars
from weft.models.running_queue import Advice, QueueFigures
from weft.models.share_advice import QueueUse, ShareAdvice, advise_shares
from weft.proto.settings import SHARE_WHOLE

from . import shape

if TYPE_CHECKING:
    from weft import Client, QueueStats

F = TypeVar("F", bound=Callable[..., Any])

#: Round trips of which the median is taken, for the time of one message.
_TRIPS: Final = 21
_COUNTERS: Final = ("pushed", "delivered", "probes", "empty_probes", "blocked_pops")


def _measured(function: F) -> F:
    for option in reversed((
        click.option("--consumers", type=click.IntRange(1), required=True,
                     help="Pops that run at one time, over all clients [M]."),
        click.option("--producers", type=click.IntRange(1), default=None,
                     help="Producers, over all clients.  [default: one for each node]"),
        click.option("--seconds", type=click.FloatRange(1, 3600), default=10.0, show_default=True,
                     help="How long to measure."),
        click.option("--objects", type=click.IntRange(200, 100_000_000), default=50_000,
                     show_default=True, help="Objects of each simulation."),
        shape.seed_option,
    )):  # fmt: skip
        function = option(function)
    return function


@click.command
@click.argument("queue", type=options.QUEUE_NAME)
@_measured
@shape.plotted
@options.everywhere
def compare(
    queue: str, consumers: int, producers: int | None, seconds: float, objects: int, seed: int,
    picture: str | None,
) -> None:  # fmt: skip
    """Measure a running stochastic queue, and set the simulator's figures beside it.

    The counters of all nodes give probes, blocked time and rates; the number of consumers has to be
    named. All nodes are taken as equal.

    \b
    Example:
      weft model compare events --consumers 16 --seconds 30
    """
    with options.connect() as client:
        figures = _measure(client, queue, consumers, producers, seconds)
    model = figures.model()
    run = running_queue.predict(model, objects, seed)
    rows: list[list[Any]] = [
        ["probes per request", figures.hops, run.probes],
        ["waiting time of a request, ms", figures.wait_ms, run.wait],
        ["a probe finds no message", figures.empty, run.empty],
        ["utilization of producers", figures.producer_utilization, run.producer_utilization],
        ["requests served per second", figures.objects_per_s, 1000 * run.throughput],
    ]
    shape.show(
        f"{queue}: {figures.nodes} nodes, {consumers} consumers, {seconds:g} s",
        ["", "measured", "simulation", "off"],
        [[label, real, found, f"{_off(real, found):+.1%}"] for label, real, found in rows],
        as_json=False,
        document={
            "queue": queue,
            "figures": shape.plain(figures),
            "model": shape.plain(model),
            "measured": {label: real for label, real, _ in rows},
            "simulation": shape.plain(run),
        },
        notes=[
            f"load {100 * model.load:.0f} %; a message takes {figures.message_ms:.3f} ms; "
            f"{figures.lot:.1f} messages per pop"
        ],
    )
    shape.plot_to(
        picture,
        lambda: Bars(
            f"{queue}: measured and simulated",
            "relative to the simulation",
            tuple(label for label, _, _ in rows),
            {
                "measured": tuple(real / found if found else 0.0 for _, real, found in rows),
                "simulation": tuple(1.0 for _ in rows),
            },
        ),
    )


@click.command
@click.argument("queues", nargs=-1, type=options.QUEUE_NAME)
@_measured
@shape.plotted
@options.everywhere
def advise(
    queues: tuple[str, ...], consumers: int, producers: int | None, seconds: float, objects: int,
    seed: int, picture: str | None,
) -> None:  # fmt: skip
    """Suggest max_hops and buffers of stochastic queues, and shares, with the predicted gain.

    Measures each stochastic queue (by default all with traffic), simulates other settings, and
    suggests the cheapest setting that is as good as the best. If queues compete for the nodes'
    time, a share is suggested for each queue that gets all it wants now, so that a flood of other
    queues leaves it that much.

    \b
    Examples:
      weft model advise --consumers 16
      weft model advise events --consumers 16 --seconds 30 --json
    """
    found: dict[str, tuple[QueueFigures, Advice]] = {}
    with options.connect() as client:
        known = {each.name: each for each in client.list_queues()}
        for name in queues or known:
            # A queue that was named and does not exist is refused by the cluster.
            stats = known[name] if name in known else client.queue(name).stats()
            if not stats.settings.stochastic:
                continue
            figures = _measure(client, name, consumers, producers, seconds)
            if not queues and not (figures.pushed and figures.delivered):
                continue
            with shape.progress(f"settings of {name}", running_queue.trials(figures)) as done:
                found[name] = figures, running_queue.advise(figures, objects, seed, done)
        shares = [
            each for each in _shares(client) if not queues or each.queue in queues
        ]  # fmt: skip
    if not found and not shares:
        raise WeftError(
            "nothing to advise: no stochastic queue had traffic, and no queue that gets all it "
            "wants competes with others for the nodes' time; measure for longer, under load"
        )
    document = {
        "queues": [_document(name, *each) for name, each in found.items()],
        "shares": [shape.plain(each) | {"gain": each.gain} for each in shares],
    }
    if options.wants_json():
        output.as_json(document)
    else:
        _show_settings(found, seconds)
        _show_shares(shares)
    shape.plot_to(picture, lambda: _gains(found, shares))


def _document(name: str, figures: QueueFigures, advice: Advice) -> dict[str, Any]:
    return {
        "queue": name, "figures": shape.plain(figures), "max_hops": advice.max_hops,
        "buffers": advice.buffers, "throughput_gain": advice.throughput_gain,
        "wait_gain": advice.wait_gain, "now": shape.plain(advice.now),
        "then": shape.plain(advice.then),
    }  # fmt: skip


def _show_settings(found: dict[str, tuple[QueueFigures, Advice]], seconds: float) -> None:
    if found:
        shape.show(
            f"{len(found)} stochastic queues, measured for {seconds:g} s each",
            ["queue", "max hops", "buffers", "throughput", "wait"],
            [
                [
                    name, f"{figures.max_hops} -> {advice.max_hops}",
                    f"{figures.buffers} -> {advice.buffers}", f"{advice.throughput_gain:+.1%}",
                    f"{-advice.wait_gain:+.1%}",
                ]
                for name, (figures, advice) in found.items()
            ],
            as_json=False, document={},
            notes=["throughput and wait of consumers: predicted change, by simulation"],
        )  # fmt: skip


def _show_shares(shares: list[ShareAdvice]) -> None:
    if shares:
        shape.show(
            f"{len(shares)} queues that competed for the nodes' time",
            ["queue", "used", "share", "kept in a flood"],
            [
                [
                    each.queue, f"{each.used:.1%}",
                    "limited" if each.limited else f"{each.share:g} -> {each.advised:g}",
                    f"{each.kept_now:.0%} -> {each.kept_then:.0%}",
                ]
                for each in shares
            ],
            as_json=False, document={},
            notes=[
                "used: of the nodes' time. Kept in a flood: of that, while all queues want all",
                "limited queues would take more; which of them is to have it is for you to say",
            ],
        )  # fmt: skip


def _gains(found: dict[str, tuple[QueueFigures, Advice]], shares: list[ShareAdvice]) -> Bars:
    """The predicted gains; without stochastic queues those of the shares."""
    if found:
        advices = [advice for _, advice in found.values()]
        return Bars(
            "Predicted gain of the suggested settings",
            "relative to now",
            tuple(found),
            {
                "throughput": tuple(1 + each.throughput_gain for each in advices),
                "wait": tuple(1 - each.wait_gain for each in advices),
            },
        )
    return Bars(
        "What queues keep of their use in a flood",
        "part of the present use",
        tuple(each.queue for each in shares),
        {
            "now": tuple(each.kept_now for each in shares),
            "with the suggested shares": tuple(each.kept_then for each in shares),
        },
    )


def _shares(client: Client) -> list[ShareAdvice]:
    """Advice from what all queues have used while they competed, of about the last ten seconds."""
    return advise_shares([
        QueueUse(each.name, each.settings.share / SHARE_WHOLE, float(each.charged_us))
        for each in client.list_queues()
    ])  # fmt: skip


def _measure(
    client: Client, name: str, consumers: int, producers: int | None, seconds: float
) -> QueueFigures:
    queue = client.queue(name)
    first, began = queue.stats(), time.monotonic()
    settings = first.settings
    if not settings.stochastic:
        raise InvalidArgument(f"{name} is not a stochastic queue: its pops do not probe")
    message_ms = _message_ms(client)
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    last, interval_ms = queue.stats(), 1000 * (time.monotonic() - began)
    if last.partial or first.partial:
        raise WeftError(f"some nodes did not answer, so the counts of {name} are partial")
    counts = {each: _grown(first, last, each) for each in _COUNTERS}
    nodes = sum(not node.witness for node in client.view().nodes)
    return QueueFigures(
        interval_ms=interval_ms,
        blocked_ms=_grown(first, last, "blocked_us") / 1000,
        room_wait_ms=_grown(first, last, "room_wait_us") / 1000,
        nodes=nodes,
        consumers=consumers,
        producers=producers or nodes,
        message_ms=message_ms,
        buffers=settings.buffers,
        max_hops=settings.max_hops,
        **counts,
    )


def _grown(first: QueueStats, last: QueueStats, counter: str) -> int:
    """A node that restarts in between starts its counters anew."""
    grown: int = getattr(last, counter) - getattr(first, counter)
    if grown < 0:
        raise WeftError("a node restarted during the measurement: measure again")
    return grown


def _message_ms(client: Client) -> float:
    """The time of one message: half of the median round trip of a small request."""
    trips = []
    for _ in range(_TRIPS):
        began = time.perf_counter()
        client.view()
        trips.append(time.perf_counter() - began)
    return 1000 * statistics.median(trips) / 2


def _off(real: float, found: float) -> float:
    return real / found - 1 if found else 0.0
