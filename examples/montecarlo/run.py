"""Runs the whole example: a node, the ranks of the simulation with a gateway, and the reader.

python examples/montecarlo/run.py --ranks 4 --samples 200000 --out convergence.png
python examples/montecarlo/run.py --reader python              # without Spark

With WEFT_SERVERS set, the example uses that cluster; otherwise the example starts a temporary node.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import weft
import weft.testing

HERE = Path(__file__).resolve().parent
READERS = {"spark": "stream.py", "python": "converge.py"}


def _missing() -> str:
    """The missing requirement of Spark and how to install it; "" if Spark can run."""
    if importlib.util.find_spec("pyspark") is None:
        return "no Spark: pip install 'weft[spark]'"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "no Java, which Spark needs: install Java 17 or later"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4, help="the gateway's is one of them")
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--queue", default="samples")
    parser.add_argument("--out", type=Path, default=Path("convergence.png"))
    parser.add_argument("--reader", choices=READERS, default="spark")
    options = parser.parse_args()
    if options.reader == "spark" and (missing := _missing()):
        raise SystemExit(f"{missing}, or say --reader python")
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("no mpiexec: pip install 'weft[mpi]' brings one")
    samples = ["--samples", str(options.samples)]
    command = [mpiexec, "-n", str(options.ranks), sys.executable, "-m", "weft.client.cli.main"]
    command += ["mpi-gateway", "--queue", options.queue, "--"]
    command += [sys.executable, str(HERE / "simulate.py"), *samples]
    reader = [sys.executable, str(HERE / READERS[options.reader]), *samples]
    reader += ["--queue", options.queue, "--out", str(options.out)]
    with ExitStack() as stack:
        servers = os.environ.get("WEFT_SERVERS")
        if servers is None:
            servers = stack.enter_context(weft.testing.cluster()).servers[0]
        environment = {**os.environ, "WEFT_SERVERS": servers}
        with weft.connect(servers) as client:
            client.create_queue(options.queue)
        consumer = stack.enter_context(subprocess.Popen(reader, env=environment))
        ended = subprocess.run(command, env=environment, check=False)
        if ended.returncode:
            consumer.terminate()
            raise SystemExit(f"the simulation ended with exit code {ended.returncode}")
        if consumer.wait():
            raise SystemExit("the reader failed: see above")


if __name__ == "__main__":
    main()
