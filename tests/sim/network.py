"""A network that loses, delays, duplicates and reorders, and can be cut, one way too."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkFaults:
    """How unreliable the network is: drawn once per seed."""

    loss: float = 0.0
    double: float = 0.0
    delay_us: int = 500
    spike: float = 0.0  # share of messages that are very late

    @staticmethod
    def draw(rng: random.Random) -> NetworkFaults:
        return NetworkFaults(
            loss=rng.choice([0.0, 0.0, 0.02, 0.1, 0.25]),
            double=rng.choice([0.0, 0.0, 0.05, 0.2]),
            delay_us=rng.choice([100, 500, 5_000]),
            spike=rng.choice([0.0, 0.01, 0.1]),
        )


class Network:
    def __init__(self, rng: random.Random, network_faults: NetworkFaults) -> None:
        self._rng = rng
        self.network_faults = network_faults
        self._cut: set[tuple[str, str]] = set()

    def cut(self, sender: str, receiver: str) -> None:
        self._cut.add((sender, receiver))

    def join_again(self) -> None:
        """Reconnect all machines."""
        self._cut.clear()

    def heal(self) -> None:
        self.join_again()
        self.network_faults = NetworkFaults()

    def delays(self, sender: str, receiver: str, *, once: bool = False) -> list[int]:
        """Arrival delays of a message's copies, in microseconds from now: none, one or two.

        `once`: the message goes over a connection, which does not duplicate.
        """
        rng, network_faults = self._rng, self.network_faults
        if (sender, receiver) in self._cut or (
            network_faults.loss and rng.random() < network_faults.loss
        ):
            return []
        copies = (
            2 if not once and network_faults.double and rng.random() < network_faults.double else 1
        )
        return [self._delay() for _ in range(copies)]

    def _delay(self) -> int:
        rng, network_faults = self._rng, self.network_faults
        delay = 20 + int(rng.expovariate(1 / network_faults.delay_us))
        if network_faults.spike and rng.random() < network_faults.spike:
            delay += rng.randrange(2_000_000)
        return delay
