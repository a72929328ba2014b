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

    def heal(self) -> None:
        self._cut.clear()
        self.weather = Weather()

    def delays(self, sender: str, receiver: str) -> list[int]:
        """When copies of a message arrive, in microseconds from now: none, one or two."""
        rng, weather = self._rng, self.weather
        if (sender, receiver) in self._cut or rng.random() < weather.loss:
            return []
        copies = 2 if rng.random() < weather.double else 1
        return [self._delay() for _ in range(copies)]

    def _delay(self) -> int:
        rng, weather = self._rng, self.weather
        delay = 20 + int(rng.expovariate(1 / weather.delay_us))
        return delay + rng.randrange(2_000_000) if rng.random() < weather.spike else delay
