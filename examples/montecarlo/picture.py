"""Plots the convergence of the estimate to the exact price, and prints a summary line."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from option import Call

matplotlib.use("Agg")
from matplotlib import pyplot

Numbers = npt.NDArray[np.float64]


def draw(counts: Numbers, means: Numbers, errors: Numbers, reader: str, out: Path) -> None:
    """Plots the running estimate with standard errors, and prints the final estimate."""
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    low, high = means - 1.96 * errors, means + 1.96 * errors
    axes.fill_between(counts, low, high, alpha=0.25, label="95 % confidence")
    axes.plot(counts, means, marker="." if len(counts) < 50 else "", label="estimate")
    axes.axhline(Call().price(), color="black", linewidth=1, linestyle="--", label="exact price")
    axes.set(xscale="log", xlabel="samples", ylabel="price of the call")
    axes.set_title(f"Samples from MPI ranks, through Weft, read by {reader}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(out, dpi=120)
    pyplot.close(figure)
    print(
        f"{int(counts[-1]):,} samples: {means[-1]:.4f} +- {errors[-1]:.4f}, "
        f"exactly {Call().price():.4f}; see {out}"
    )


def errors_of(counts: Numbers, means: Numbers, squares: Numbers) -> Numbers:
    """Standard errors, from the mean of the samples and the mean of their squares."""
    errors: Numbers = np.sqrt(np.maximum(squares - means**2, 0) / counts)
    return errors
