"""A network that loses, delays, doubles and reorders, and can be cut, one way too."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Weather:
    """How bad it is: drawn once per seed."""

    loss: float = 0.0
    double: float = 0.0
    delay_us: int = 500
    spike: float = 0.0  # share of messages that are very late

    @staticmethod
    def draw(rng: random.Random) -> Weather:
        return Weather(
            loss=rng.choice([0.0, 0.0, 0.02, 0.1, 0.25]),
            double=rng.choice([0.0, 0.0, 0.05, 0.2]),
            delay_us=rng.choice([100, 500, 5_000]),
            spike=rng.choice([0.0, 0.01, 0.1]),
        )


class Network:
    def __init__(self, rng: random.Random, weather: Weather) -> None:
        self._rng = rng
        self.weather = weather
        self._cut: set[tuple[str, str]] = set()

    def cut(self, sender: str, receiver: str) -> None:
        self._cut.add((sender, receiver))

    def join_again(self) -> None:
        """Nobody is cut off."""
        self._cut.clear()

    def heal(self) -> None:
        self.join_again()
        self.weather = Weather()

    def delays(self, sender: str, receiver: str, *, once: bool = False) -> list[int]:
        """When copies of a message arrive, in microseconds from now: none, one or two.

        `once`: it goes over a connection that does not double what it carries.
        """
        rng, weather = self._rng, self.weather
        if (sender, receiver) in self._cut or (weather.loss and rng.random() < weather.loss):
            return []
        copies = 2 if not once and weather.double and rng.random() < weather.double else 1
        return [self._delay() for _ in range(copies)]

    def _delay(self) -> int:
        rng, weather = self._rng, self.weather
        delay = 20 + int(rng.expovariate(1 / weather.delay_us))
        if weather.spike and rng.random() < weather.spike:
            delay += rng.randrange(2_000_000)
        return delay
