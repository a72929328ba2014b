"""The steward: how a cluster tends itself, once in a while.

A primary takes the next step of the plan for its own partitions: learners are brought in, sets grow
and shrink, a better placed node is promoted. What concerns the whole cluster (who votes, how many
copies an acknowledgement needs, who is away for too long, who may be removed) is looked after by
one node, the primary of the catalogue, so that nodes do not compete for the register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import view as views
from .planner import copies, holders, plan, step, voters
from .role import Role
from .view import Place, View

if TYPE_CHECKING:
    from .core import Core

#: Learners that are not level yet, brought in by one node at one time.
NEW_LEARNERS_MAX: Final = 64


class Steward:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._planned: tuple[int, list[Place]] = (0, [])

    def tend(self) -> None:
        core = self._core
        if not core.proposer.idle or not core.view.members:
            return
        goal = self._goal(core.view)
        room = NEW_LEARNERS_MAX - sum(r.installing_others for r in core.replicas.values())
        spare = holders(core.view)
        # The catalogue goes first: a node that leads anything needs the queues' records.
        for number in sorted(core.replicas, key=lambda number: number != core.catalogue):
            replica = core.replicas[number]
            if replica.role is not Role.ACTIVE:
                continue
            next_step = step(number, replica.place, goal[number], core.alive, core.size.sync, spare)
            replica.wait_only_for(next_step.grow)
            if next_step.grow:
                if replica.want_grow(next_step.grow):
                    core.wish(views.grow(number, replica.place.epoch, next_step.grow))
            elif next_step.change is not None and room > 0:
                room -= 1
                core.wish(next_step.change)
        catalogue = core.replicas.get(core.catalogue)
        if catalogue is not None and catalogue.role is Role.ACTIVE:
            self._keep_house(core.view)

    def _goal(self, view: View) -> list[Place]:
        if self._planned[0] != view.version:
            self._planned = view.version, plan(view, self._core.size)
        return self._planned[1]

    def _keep_house(self, view: View) -> None:
        core = self._core
        wanted = voters(view)
        if view.joining:
            core.wish(views.revote(view.joining))
        elif set(wanted) != set(view.voters):
            core.wish(views.revote(wanted))
        needed = copies(view, core.size)
        # One node alone does not lower it: its partner may come back, and has what was promised.
        lower = view.min_sync > needed and len(holders(view)) == 2
        ready = all(len(place.sync) >= needed for place in view.places)
        if lower or (view.min_sync < needed and ready):
            core.wish(views.require(needed, lambda view: copies(view, core.size)))
        for node, member in view.members.items():
            silent = core.now - core.heard.get(node, core.now)
            here = member.state in ("active", "stopped")
            if here and node != core.node and silent > core.pace.grace:
                core.wish(views.mark(node, "away"))
            elif member.state == "away" and core.alive(node):
                core.wish(views.mark(node, "active"))
            elif member.state == "leaving" and self._free(view, node):
                core.wish(views.remove(node))

    @staticmethod
    def _free(view: View, node: str) -> bool:
        return node not in view.deciders and not any(node in place.sync for place in view.places)
