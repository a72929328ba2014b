"""A client of the simulated world that does one thing after the other, written as a generator.

It yields what it asks and is sent the answer, or None when none came in time. It may be killed
between any two steps, as a process is: what it had asked may still be done.
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
    #: The partition whose primary is asked; None: anybody.
    place: int | None = None


class Sleeps(NamedTuple):
    us: int


class Answer(NamedTuple):
    said: wire.AnyAnswer
    frames: Sequence[bytes]


Acts = Generator[Asks | Sleeps, Answer | None, None]
#: A step of one: it ends with the answer.
Step = Generator[Asks | Sleeps, Answer | None, Answer]


def insist(
    request: wire.AnyRequest, payload: Sequence[bytes] = (), place: int | None = None
) -> Step:
    """Asks until there is an answer that stands."""
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
            wish = self._acts.send(answer)
        except StopIteration:
            self.alive = False
            return
        if isinstance(wish, Sleeps):
            self._world.after(wish.us, self._once(self._step, None))
            return
        self._world.after(_PATIENCE, self._once(self._step, None))
        self._ask(wish)

    def _once(self, step: int, answer: Answer | None) -> Callable[[], None]:
        return lambda: self._go(answer) if self._step == step else None

    def _ask(self, wish: Asks) -> None:
        machine = self._world.member()
        if machine is None:
            return
        plain = wish.place is None
        if wish.place is not None:
            machine = self._world.machines[machine.loom.view.places[wish.place].primary]
        step = self._step

        def heard(_: Machine, said: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
            if self._step == step:
                self._go(Answer(said, frames))

        self._world.ask(machine, wish.request, wish.payload, heard, plain=plain)
