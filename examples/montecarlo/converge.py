"""Reads the samples as they come and plots how the estimate converges.

python converge.py --queue samples --samples 200000 --out convergence.png

Any other reader may take its place: a message is 16 little-endian doubles.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
from option import BATCH, Call

import weft

matplotlib.use("Agg")
from matplotlib import pyplot

#: Nothing for so long means that the simulation died.
IDLE_MS = 60_000


def samples(queue: str, count: int) -> Iterator[bytes]:
    """The bodies of messages until there were so many samples."""
    with weft.connect() as client, client.queue(queue).consume(idle_ms=IDLE_MS) as consumer:
        for message in consumer:
            yield message.body
            message.ack()
            count -= BATCH
            if count <= 0:
                return


def plot(values: np.ndarray, out: Path) -> tuple[float, float]:
    """Draws the running estimate; gives the last one and its standard error."""
    counts = np.arange(1, len(values) + 1)
    means = np.cumsum(values) / counts
    spread = np.sqrt(np.maximum(np.cumsum(values**2) / counts - means**2, 0) / counts)
    shown = np.unique(np.geomspace(BATCH, len(values), 400).astype(int)) - 1
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    low, high = (means - 1.96 * spread)[shown], (means + 1.96 * spread)[shown]
    axes.fill_between(counts[shown], low, high, alpha=0.25, label="95 % confidence")
    axes.plot(counts[shown], means[shown], label="estimate")
    axes.axhline(Call().price(), color="black", linewidth=1, linestyle="--", label="exact price")
    axes.set(xscale="log", xlabel="samples", ylabel="price of the call")
    axes.set_title("Samples from MPI ranks, through Weft")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    pyplot.close(figure)
    return float(means[-1]), float(spread[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", default="samples")
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=Path("convergence.png"))
    options = parser.parse_args()
    values = np.frombuffer(b"".join(samples(options.queue, options.samples)), "<f8")
    if not len(values):
        raise SystemExit(f"no sample came to the queue {options.queue}: does the simulation run?")
    estimate, error = plot(values, options.out)
    print(
        f"{len(values):,} samples: {estimate:.4f} +- {error:.4f}, exactly {Call().price():.4f}; "
        f"see {options.out}"
    )


if __name__ == "__main__":
    main()
