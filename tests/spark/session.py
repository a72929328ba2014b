"""How tests start Spark: whether Java is present, and settings for a quick start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
ROOT = Path(__file__).resolve().parents[2]


def why_no_java() -> str:
    """Why Spark cannot be started here; empty when it can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    needs = "Spark needs 17 or later, on Debian apt install openjdk-17-jre-headless"
    if java is None:
        return f"no Java{f' in {home}' if home else ''}: {needs}"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None:
        return f"{java} does not say its version: {needs}"
    return "" if int(version[1]) >= JAVA_MIN else f"{java} is of version {version[1]}: {needs}"


def environment() -> dict[str, str]:
    """The JVM starts Python workers: they must use this Python, and find this tree."""
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def quick(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Settings that make Spark quick to start and small queries quick to run."""
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
