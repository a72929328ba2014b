"""Cluster calls to the nodes that the global options name."""

from __future__ import annotations

from weft.client.admin.cluster import CALL_S, ClusterCalls
from weft.client.cli import options
from weft.client.routing.discovery import parse_servers


def calls() -> ClusterCalls:
    limit_ms = options.timeout_ms()
    return ClusterCalls(parse_servers(options.servers()), limit_ms / 1000 if limit_ms else CALL_S)
