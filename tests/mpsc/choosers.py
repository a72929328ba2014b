"""Choosers of the next step: at random in three ways, or exhaustively.

The exhaustive search walks all interleavings depth first, running the program again for each. Two
interleavings that differ only in the order of independent steps give the same history, and sleep
sets (Godefroid) keep one of them: a step that was tried first at a node need not be tried in its
siblings' subtrees until a dependent step has happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.mpsc.explorer import Choice, Hub, Transition


class Uniform:
    """Every choice is equally likely."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, hub: Hub, choices: list[Choice]) -> Choice | None:
        return self._random.choice(choices)

    def made(self, transition: Transition) -> None:
        """Nothing to learn."""


class Bursts(Uniform):
    """An actor continues for a while: whole calls overtake a stalled one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._stay = self._random.choice((0.7, 0.85, 0.95))
        self._last: Choice | None = None

    def choose(self, hub: Hub, choices: list[Choice]) -> Choice | None:
        if self._last not in choices or self._random.random() > self._stay:
            self._last = self._random.choice(choices)
        return self._last


class Priorities(Uniform):
    """The first in a random order runs; at a few random times it falls to the end (PCT)."""

    def __init__(self, seed: int, steps: int = 120) -> None:
        super().__init__(seed)
        self._rank: dict[int, float] = {}
        self._falls = {self._random.randrange(steps) for _ in range(self._random.randint(1, 5))}
        self._made = 0

    def choose(self, hub: Hub, choices: list[Choice]) -> Choice | None:
        for choice in choices:
            self._rank.setdefault(choice.actor, self._random.random())
        best = min(choices, key=lambda choice: self._rank[choice.actor])
        if self._made in self._falls:
            self._rank[best.actor] = 1.0 + self._made
            best = min(choices, key=lambda choice: self._rank[choice.actor])
        self._made += 1
        return self._random.choice([it for it in choices if it.actor == best.actor])


def at_random(seed: int) -> Uniform:
    """One of the three ways, by the seed."""
    return (Uniform, Bursts, Priorities)[seed % 3](seed)


@dataclass
class _Node:
    """A state on the current path."""

    choices: list[Choice]
    sleep: dict[Choice, Transition]
    taken: Choice
    transition: Transition | None = None


@dataclass
class Exhaustive:
    """The chooser of one run: follow the path, then the first choice that is not asleep."""

    path: list[_Node] = field(default_factory=list)
    depth: int = 0

    def choose(self, hub: Hub, choices: list[Choice]) -> Choice | None:
        if self.depth == len(self.path):
            sleep = self._inherited()
            awake = [choice for choice in choices if choice not in sleep]
            if not awake:
                return None
            self.path.append(_Node(choices, sleep, awake[0]))
        node = self.path[self.depth]
        assert node.taken in choices, "the same choices must lead to the same state"
        return node.taken

    def made(self, transition: Transition) -> None:
        self.path[self.depth].transition = transition
        self.depth += 1

    def advance(self) -> bool:
        """Make the path the next one to be run; False: there is none."""
        while self.path:
            node = self.path[-1]
            assert node.transition is not None
            node.sleep[node.taken] = node.transition
            awake = [choice for choice in node.choices if choice not in node.sleep]
            if awake:
                node.taken, node.transition = awake[0], None
                self.depth = 0
                return True
            self.path.pop()
        return False

    def _inherited(self) -> dict[Choice, Transition]:
        if not self.path:
            return {}
        parent = self.path[-1]
        made = parent.transition
        assert made is not None
        return {
            choice: asleep for choice, asleep in parent.sleep.items() if not asleep.depends(made)
        }


def every_way(run: Callable[[Exhaustive], None], runs_max: int) -> int | None:
    """Call ``run`` with choosers for all interleavings; how many, or None if there are too many."""
    chooser = Exhaustive()
    for count in range(1, runs_max + 1):
        run(chooser)
        if not chooser.advance():
            return count
    return None
