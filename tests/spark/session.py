"""How tests start Spark: whether they can, and what makes it quick."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def why_no_java() -> str:
    """Why Spark cannot be started here; empty when it can."""
    java = shutil.which("java")
    if java is None:
        return "no Java: Spark needs 17 or later, on Debian apt install openjdk-17-jre-headless"
    if subprocess.run([java, "-version"], capture_output=True, check=False).returncode:
        return f"{java} does not run: Spark needs Java 17 or later"
    return ""


def environment() -> dict[str, str]:
    """Python workers are started by the JVM: they are to be this Python, and to find this tree."""
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def quick(builder: SparkSession.Builder) -> SparkSession.Builder:
    """What makes Spark quick to start and small queries quick to run."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.python.daemon.module": "weft.spark.daemon",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder
