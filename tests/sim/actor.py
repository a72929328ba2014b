"""A sequential client of the simulated world, written as a generator.

The generator yields a request and is sent the answer, or None after a timeout. An actor may be
killed between any two steps, as a process may be: a request already sent may still be executed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from weft.proto import wire

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

#: Longer than the world keeps a client's connection.
_PATIENCE = 2_500_000
_PAUSE = 300_000


class Asks(NamedTuple):
    request: wire.AnyRequest
    payload: Sequence[bytes] = ()
    #: Send the request to the primary of this partition; None: to any member.
    place: int | None = None


class Sleeps(NamedTuple):
    us: int


class Answer(NamedTuple):
    said: wire.AnyAnswer
    frames: Sequence[bytes]


Acts = Generator[Asks | Sleeps, Answer | None, None]
#: A sub-generator for one request; returns the answer.
Step = Generator[Asks | Sleeps, Answer | None, Answer]


def insist(
    request: wire.AnyRequest, payload: Sequence[bytes] = (), place: int | None = None
) -> Step:
    """Repeat the request until an answer arrives that is not a retriable failure."""
    while True:
        answer = yield Asks(request, payload, place)
        if answer is not None:
            said = answer.said
            if not (isinstance(said, wire.Failure) and said.retriable):
                return answer
        yield Sleeps(_PAUSE)


class Actor:
    def __init__(self, world: World, acts: Acts) -> None:
        self._world = world
        self._acts = acts
        self._step = 0
        self.alive = True
        self._go(None)

    def kill(self) -> None:
        self.alive = False
        self._acts.close()

    def _go(self, answer: Answer | None) -> None:
        if not self.alive:
            return
        self._step += 1
        try:
            act = self._acts.send(answer)
        except StopIteration:
            self.alive = False
            return
        if isinstance(act, Sleeps):
            self._world.after(act.us, self._once(self._step, None))
            return
        self._world.after(_PATIENCE, self._once(self._step, None))
        self._ask(act)

    def _once(self, step: int, answer: Answer | None) -> Callable[[], None]:
        return lambda: self._go(answer) if self._step == step else None

    def _ask(self, act: Asks) -> None:
        machine = self._world.member()
        if machine is None:
            return
        plain = act.place is None
        if act.place is not None:
            machine = self._world.machines[machine.node_core.view.places[act.place].primary]
        step = self._step

        def heard(_: Machine, said: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
            if self._step == step:
                self._go(Answer(said, frames))

        self._world.ask(machine, act.request, act.payload, heard, plain=plain)
