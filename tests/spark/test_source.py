"""How Spark finds the data source, and the cost of finding it."""

from __future__ import annotations

import subprocess
import sys

from tests.spark.session import ROOT, environment

HEAVY = {"grpc", "matplotlib", "msgspec", "numpy", "pandas", "pyarrow", "zmq"}


def test_spark_finds_it_by_its_name() -> None:
    """Spark imports every package of such a name, whether used or not."""
    program = (
        "import sys, pkgutil, pyspark.sql.datasource\n"
        "assert 'pyspark_weft' in {each.name for each in pkgutil.iter_modules()}\n"
        "before = set(sys.modules)\n"
        "from pyspark_weft import DefaultSource\n"
        "print(DefaultSource.name(), *sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    name, *loaded = done.stdout.split()
    assert name == "weft"
    assert not {module.partition(".")[0] for module in loaded} & HEAVY
