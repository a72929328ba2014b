"""Joining and leaving, as errands: the view is asked for, and looked at until it says so. And how
a node that stops hands over."""

from __future__ import annotations

from typing import Protocol

from weft.dht import view as views
from weft.dht.core import Core, encode_view
from weft.dht.planner import holders
from weft.dht.view import Member
from weft.errors import InvalidArgument, UsageError
from weft.proto import wire

from .errand import Errand, Pause


class House(Protocol):
    @property
    def core(self) -> Core: ...
    @property
    def cluster(self) -> str: ...


def join(house: House, request: wire.Join) -> Errand:
    core = house.core
    for name in ("node", "peer", "key"):
        if not getattr(request, name):
            raise InvalidArgument(f"a node that joins must give its {name}")
    member = Member(
        request.peer, request.key, request.grpc, request.zmq, "active", request.witness,
        request.data_key,
    )  # fmt: skip
    while True:
        view = core.view
        known = view.members.get(request.node)
        if request.node in view.removed:
            raise UsageError(
                f"node {request.node} has left this cluster for good: start it with an empty data "
                "directory, and it joins as a new one"
            )
        if known is not None and known.key != member.key:
            raise UsageError(f"node {request.node} is a member already, with another key")
        if known == member:
            return wire.Joined(house.cluster, core.catalogue, encode_view(view)), ()
        if core.proposer.idle:
            core.wish(views.join(request.node, member))
        yield Pause()


def leave(house: House, request: wire.Leave) -> Errand:
    """Marked as leaving: its data is moved away, then it is removed. Nothing is lost by it."""
    core = house.core
    while True:
        view = core.view
        member = view.members.get(request.node)
        if member is None:
            raise InvalidArgument(f"{request.node} is not a member of this cluster")
        if member.state == "leaving":
            return wire.Done(), ()
        rest = [node for node in holders(view) if node != request.node]
        few = not member.witness and len(rest) < view.min_sync
        if few and not (request.force and rest):
            raise UsageError(
                f"without {request.node} only {len(rest)} nodes would hold data, and every message "
                f"is kept on {view.min_sync}: add a node first"
            )
        if core.proposer.idle:
            if few:
                core.wish(views.require(len(rest)))
            core.wish(views.mark(request.node, "leaving"))
        yield Pause()


def retire(house: House) -> bool:
    """Others are to go on without this node; whether there is still something to hand over.

    Where enough others are there, it leaves the sync set, or they would wait for it until they
    suspect it. Where they are not, its copy is needed again soon: only the lead is given away.
    Nothing is left to a node that was not heard yet: it may be gone for ever, and with it the last
    copy that counts.
    """
    core, view = house.core, house.core.view
    epochs: dict[int, int] = {}
    promoted: dict[int, str] = {}
    for number, place in enumerate(view.places):
        others = [n for n in place.sync if n != core.node and core.met(n)]
        if core.node not in place.sync or not others:
            continue
        if len(others) + sum(map(core.met, place.learners)) >= view.min_sync:
            epochs[number] = place.epoch
        elif place.primary == core.node:
            promoted[number] = others[0]
    if core.proposer.idle:
        if epochs:
            core.wish(views.retire(core.node, epochs))
        for number, second in promoted.items():
            core.wish(views.promote(number, view.places[number].epoch, second))
    return bool(epochs or promoted)
