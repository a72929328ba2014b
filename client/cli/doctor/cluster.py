"""The doctor's check of the cluster verdict, as one node reports it."""

from __future__ import annotations

from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import ClusterHealth
from weft.dht.safety import SETTLED, UNAVAILABLE, Verdict
from weft.errors import Refused, WeftError

from .finding import Finding


def check_cluster(server: str) -> Finding:
    """The verdict of `weft cluster status`, queried from this node."""
    check = f"{server} cluster"
    try:
        return check_verdict(check, ClusterHealth.of(ClusterCalls([server]).places()).verdict)
    except Refused as error:
        return Finding("WARN", check, error.message, "use a token with the grant `admin:*`")
    except WeftError as error:
        return Finding("FAIL", check, error.message, "check the node's log")


def check_verdict(check: str, verdict: Verdict) -> Finding:
    if verdict.state == SETTLED:
        return Finding("OK", check, f"settled: {verdict.outlook}")
    found = f"{verdict.state}: {'; '.join((*verdict.reasons, verdict.outlook))}"
    advice = "; ".join(verdict.advice) or "wait: `weft cluster status --wait settled`"
    return Finding("FAIL" if verdict.state == UNAVAILABLE else "WARN", check, found, advice)
