"""Paper 3: the convoy effect in atomic multicast, equations 1 to 6.

A message that has its sequence number waits for messages with smaller timestamps: the convoy effect
CE. n processes, s destinations per message, mean transit time delta, lambda_T messages per second
in batches of beta:

    (1)  CE = d (n - 1/CCS), CCS = d / (d + i)                    a lock: held d, requested after i
    (2)  CE = 2 delta P_c (1 - e^-l (1 + Ei(l) - log(l) - gamma))      l messages in 2 delta
    (3)  P_c = 1 - C(n-s, s) / C(n, s)                          two messages share a destination
    (4)  latency = 3 delta + CE                                              with a coordinator
    (5)  l = lambda_T 2 delta / beta
    (6)  latency = 2 delta + CE                      timestamps to all destinations; see below

Corrections of the print:

- (1): for n below 1/CCS the printed value is negative; no process queues then, and CE is 0.
- (2) prints log(n) for log(lambda). At l = 0.01 and delta = 100 ms the print is off by hundreds of
  milliseconds for a convoy of 0.004 ms. Here the sum over k that (2) stands for is used.
- (3) prints the binomials upside down; P_c = 1 if 2s > n.
- (5) prints a division by 2 delta; a rate times an interval is a number of messages.
- (6): without a coordinator, the interval between timestamp and sequence number is delta, not
  2 delta: the factor of (2) and the interval of (5) are delta as well.
- "rho CE", with rho the probability that two messages commute, is inverted: (1 - rho) CE.
- CE is not a lower bound: see `skeen`, which simulates the algorithm. With constant transit times
  the convoy is far below (2), with exponential ones above.

Units: milliseconds, and messages per second.
"""

from __future__ import annotations

import math
from typing import Final

from weft.errors import InvalidArgument

#: A process of the model costs nothing; the bound keeps binomials quick.
PROCESSES_MAX: Final = 100_000
#: Beyond this mean, the sum of (2) is its limit to all digits.
_MEAN_MAX: Final = 1e12


def lock_convoy(held: float, interval: float, processes: int) -> float:
    """(1): the time that a process waits for a lock in System R, in the unit of `held`."""
    check_number("the time that a lock is held", held, least=0.0, above=True)
    check_number("the interval between requests", interval, least=0.0)
    check_processes(processes)
    return max(0.0, held * (processes - (held + interval) / held))


def conflict_probability(processes: int, destinations: int) -> float:
    """(3): the probability that two messages have a destination in common."""
    check_processes(processes)
    if not 1 <= destinations <= processes:
        raise InvalidArgument(f"destinations must be 1 to {processes}, not {destinations}")
    apart = 1.0
    for at in range(destinations):
        apart *= max(0, processes - destinations - at) / (processes - at)
    return 1 - apart


def queued_part(mean: float) -> float:
    """sum over k >= 1 of Poisson(k; mean) (k-1)/k: the bracket of (2)."""
    check_number("the number of concurrent messages", mean, least=0.0)
    if mean > _MEAN_MAX:
        return 1.0
    # Outside of twelve standard deviations a Poisson distribution is below 1e-30.
    reach = 12 * math.sqrt(mean) + 40
    first, last = max(2, int(mean - reach)), int(mean + reach)
    log_mean = math.log(mean) if mean else -math.inf
    return math.fsum(
        math.exp(k * log_mean - mean - math.lgamma(k + 1)) * (k - 1) / k
        for k in range(first, last + 1)
    )


def concurrent(
    rate: float, delay_ms: float, batch: float = 1.0, *, coordinator: bool = True
) -> float:
    """(5): messages in the interval between a timestamp and its sequence number."""
    check_number("the rate", rate, least=0.0)
    check_number("the delay", delay_ms, least=0.0, above=True)
    check_number("the batch", batch, least=1.0)
    return rate * (2 if coordinator else 1) * delay_ms / 1000 / batch


def convoy_ms(
    rate: float,
    delay_ms: float,
    conflict: float,
    *,
    batch: float = 1.0,
    commute: float = 0.0,
    coordinator: bool = True,
) -> float:
    """(2) with (5): the convoy effect, for messages that commute with probability `commute`."""
    check_number("the conflict probability", conflict, least=0.0, most=1.0)
    check_number("the probability that messages commute", commute, least=0.0, most=1.0)
    mean = concurrent(rate, delay_ms, batch, coordinator=coordinator)
    interval = (2 if coordinator else 1) * delay_ms
    return (1 - commute) * interval * conflict * queued_part(mean)


def latency_ms(
    rate: float,
    delay_ms: float,
    conflict: float,
    *,
    batch: float = 1.0,
    commute: float = 0.0,
    coordinator: bool = True,
) -> float:
    """(4), or (6) without a coordinator."""
    wait = convoy_ms(
        rate, delay_ms, conflict, batch=batch, commute=commute, coordinator=coordinator
    )
    return (3 if coordinator else 2) * delay_ms + wait


def check_number(
    name: str, value: float, *, least: float, most: float = math.inf, above: bool = False
) -> None:
    """Raises InvalidArgument unless least <= value <= most; `above` excludes `least`."""
    if not math.isfinite(value) or not least <= value <= most or (above and value == least):
        limit = f"above {least:g}" if above else f"{least:g} or more"
        text = limit if most == math.inf else f"{least:g} to {most:g}"
        raise InvalidArgument(f"{name} must be {text}, not {value}")


def check_processes(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= PROCESSES_MAX:
        raise InvalidArgument(f"processes must be 1 to {PROCESSES_MAX}, not {count}")
