"""Reads the samples as they arrive and plots the convergence of the estimate.

python converge.py --queue samples --samples 200000 --out convergence.png

Any other reader can replace this one (`stream.py` uses Spark): a message is 16 little-endian
doubles.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from option import BATCH
from picture import draw, errors_of

import weft

#: Without a message for this long, the simulation is considered dead.
IDLE_MS = 60_000


def samples(queue: str, count: int) -> Iterator[bytes]:
    """Yields message bodies until the given number of samples has arrived."""
    with weft.connect() as client, client.queue(queue).consume(idle_ms=IDLE_MS) as consumer:
        for message in consumer:
            yield message.body
            message.ack()
            count -= BATCH
            if count <= 0:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", default="samples")
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path("convergence.png"))
    options = parser.parse_args()
    values = np.frombuffer(b"".join(samples(options.queue, options.samples)), "<f8")
    if not len(values):
        raise SystemExit(f"no sample came to the queue {options.queue}: does the simulation run?")
    shown = np.unique(np.geomspace(BATCH, len(values), 400).astype(int))
    means = np.cumsum(values)[shown - 1] / shown
    squares = np.cumsum(values**2)[shown - 1] / shown
    draw(shown.astype(float), means, errors_of(shown, means, squares), "Python", options.out)


if __name__ == "__main__":
    main()
