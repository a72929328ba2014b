"""One node for all tests of a file, and one SparkSession for the whole run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from weft.client.sync import Client
from weft.testing import Cluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'weft[spark]'")
ROOT = Path(__file__).resolve().parents[2]


def why_no_java() -> str:
    """Why Spark cannot be started here; empty when it can."""
    java = shutil.which("java")
    if java is None:
        return "no Java: Spark needs 17 or later, on Debian apt install openjdk-17-jre-headless"
    if subprocess.run([java, "-version"], capture_output=True, check=False).returncode:
        return f"{java} does not run: Spark needs Java 17 or later"
    return ""


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster(durability="os") as made:
        yield made


@pytest.fixture
def client(node: Cluster) -> Client:
    return node.client()


@pytest.fixture
def queue(client: Client) -> str:
    """A queue of the test's own."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    client.create_queue(name)
    return name


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if reason := why_no_java():
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    # Python workers are started by the JVM: they are to be this Python, and to find this tree.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    session = quick(SparkSession.builder.master("local[2,4]")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def quick(builder: SparkSession.Builder) -> SparkSession.Builder:
    """What makes Spark quick to start and small queries quick to run."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.python.daemon.module": "weft.spark.daemon",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.task.maxFailures": "4",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder
