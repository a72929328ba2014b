"""A European call option: random samples of the price, and the exact price."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, exp, log, sqrt

import numpy as np
import numpy.typing as npt

#: Samples in one message, as little-endian doubles, which any language can decode.
BATCH = 16
BATCH_BYTES = 8 * BATCH


@dataclass(frozen=True)
class Call:
    """The right to buy at ``strike`` after ``years``."""

    spot: float = 100.0
    strike: float = 105.0
    rate: float = 0.03
    volatility: float = 0.2
    years: float = 1.0

    def sample(self, dice: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Discounted payoffs; their mean converges to the price."""
        drift = (self.rate - self.volatility**2 / 2) * self.years
        moves = drift + self.volatility * sqrt(self.years) * dice.standard_normal(count)
        ends = self.spot * np.exp(moves)
        return exp(-self.rate * self.years) * np.maximum(ends - self.strike, 0.0)

    def price(self) -> float:
        """The exact price by Black and Scholes."""
        width = self.volatility * sqrt(self.years)
        upper = (log(self.spot / self.strike) + self.rate * self.years) / width + width / 2
        later = self.strike * exp(-self.rate * self.years)
        return self.spot * _normal(upper) - later * _normal(upper - width)


def _normal(x: float) -> float:
    return (1 + erf(x / sqrt(2))) / 2
