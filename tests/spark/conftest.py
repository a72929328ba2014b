"""One node for all tests of a file, and one SparkSession for the whole run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.session import environment, quick, why_no_java
from weft.client.sync_client import Client
from weft.testing import Cluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'weft[spark]'")


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster(durability="os") as made:
        yield made


@pytest.fixture(scope="module")
def client(node: Cluster) -> Client:
    return node.client()


@pytest.fixture
def queue(client: Client) -> str:
    """A separate queue for the test."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    client.create_queue(name)
    return name


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if reason := why_no_java():
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    session = quick(SparkSession.builder.master("local[2,4]")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
