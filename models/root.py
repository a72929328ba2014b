"""The root of an increasing function by bracketing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Halvings of an interval of doubles until its ends are neighbours, with a margin.
_HALVINGS: Final = 200


def bisect(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing function, to the last bits; an end if there is none between.

    Bisection that interpolates where that is safe (Chandrupatla 1997): the root stays bracketed,
    and a tenth of the evaluations suffice.
    """
    at_low, at_high = function(low), function(high)
    if at_low >= 0 or at_high <= 0:
        return low if at_low >= 0 else high
    # The newest point, the point on the other side of the root, and the point before.
    new, other, old = high, low, low
    at_new, at_other, at_old = at_high, at_low, at_low
    part = 0.5
    for _ in range(_HALVINGS):
        tried = new + part * (other - new)
        value = function(tried)
        if (value > 0) == (at_new > 0):
            old, at_old = new, at_new
        else:
            old, at_old = other, at_other
            other, at_other = new, at_new
        new, at_new = tried, value
        best = new if abs(at_new) < abs(at_other) else other
        near = 4e-16 * abs(best) / abs(other - new) if other != new else 1.0
        if value == 0 or near > 0.5:
            return best
        part = _interpolation((new, at_new), (other, at_other), (old, at_old))
        part = min(1 - near, max(near, part))
    return new


def _interpolation(
    new: tuple[float, float], other: tuple[float, float], old: tuple[float, float]
) -> float:
    """The next point as a part of the way from `new` to `other`; 0.5 unless a parabola fits."""
    way = (new[0] - other[0]) / (old[0] - other[0])
    rise = (new[1] - other[1]) / (old[1] - other[1])
    if not (rise * rise < way and (1 - rise) ** 2 < 1 - way):
        return 0.5
    one = new[1] / (other[1] - new[1]) * old[1] / (other[1] - old[1])
    two = (old[0] - new[0]) / (other[0] - new[0])
    three = new[1] / (old[1] - new[1]) * other[1] / (old[1] - other[1])
    return one + two * three
