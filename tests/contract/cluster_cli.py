"""A scripted cluster of three nodes, and `weft cluster` against it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from tests.contract.fake_cluster import FakeCluster, fake_cluster
from weft.client.cli.main import cli
from weft.proto import weft_pb2 as pb

A, B, C = "aaaa000011112222", "bbbb000011112222", "bbcc000011112222"
PARTITIONS = 6


@contextmanager
def three_nodes() -> Iterator[FakeCluster]:
    """Three nodes, six partitions and the catalogue; everything is healthy."""
    with fake_cluster() as fake:
        fake.places.voters.extend([A, B, C])
        for port, name in enumerate((A, B, C), 1):  # nothing listens on these
            where = f"127.0.0.1:{port}"
            fake.places.nodes.append(
                pb.Node(id=name, grpc=where, state="active", voter=True, alive=True)
            )
        for number in range(PARTITIONS + 1):
            order = [(A, B, C)[(number + step) % 3] for step in range(3)]
            fake.places.places.append(
                pb.Place(epoch=number + 1, sync=order[:2], learners=order[2:], role="active")
            )
        yield fake


def weft(fake: FakeCluster, *words: str, code: int = 0) -> Result:
    told = CliRunner().invoke(cli, ["-s", fake.address, "cluster", *words])
    assert told.exit_code == code, (told.stdout, told.stderr, told.exception)
    return told


def weft_json(fake: FakeCluster, *words: str) -> Any:
    return json.loads(weft(fake, *words, "--json").stdout)
