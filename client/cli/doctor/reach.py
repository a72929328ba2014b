"""Checks that both ports of a server answer, and measures the round-trip time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from weft.client.cli.advice import TRY
from weft.client.cli.units import micros
from weft.client.transport.credentials import Credentials
from weft.errors import WeftError

from .finding import Finding

if TYPE_CHECKING:
    from weft import Client

HEALTH_S: Final = 2.0
#: The gRPC health protocol in encoded bytes: an empty request, and field 1 of the response.
_METHOD: Final = "/grpc.health.v1.Health/Check"
_QUESTION: Final = b""
_STATES: Final = {b"": "UNKNOWN", b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}
#: A slower round trip indicates a distant or overloaded node.
ROUND_TRIP_US_GOOD: Final = 20_000
ROUND_TRIPS: Final = 20


def check_health(server: str) -> Finding:
    """Calls the gRPC health service on the public port."""
    import grpc

    check = f"{server} gRPC"
    channel_options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    credentials = Credentials.of(None, None)
    with credentials.channel(server, channel_options) as channel:
        # Raw bytes, because the health stubs are part of the server extra.
        ask = channel.unary_unary(_METHOD, lambda question: question, lambda answer: answer)
        start = time.perf_counter()
        try:
            answer = ask(_QUESTION, timeout=HEALTH_S)
        except grpc.RpcError as error:
            from weft.proto import endpoint

            cause = endpoint.failure(server, error, credentials.tls_files)
            return Finding("FAIL", check, f"no answer: {cause.message}", TRY[cause.code])
    state = _STATES.get(answer, "UNKNOWN")
    taken = micros((time.perf_counter() - start) * 1e6)
    if state != "SERVING":
        advice = "the node is stopping: start it again"
        return Finding("FAIL", check, f"the health service reports {state}", advice)
    return Finding("OK", check, f"healthy, answered in {taken}")


def check_data_path(server: str, client: Client) -> Finding:
    """The fastest of several round trips on the ZeroMQ port; the first includes connecting."""
    check = f"{server} ZeroMQ"
    try:
        taken = min(_timed(client) for _ in range(ROUND_TRIPS)) * 1e6
    except WeftError as error:
        return Finding(
            "FAIL",
            check,
            f"no answer: {error.message}",
            "open the ZeroMQ port (the gRPC port plus one) between here and the node, or set the "
            "node's --advertise to a name that this machine can reach",
        )
    if taken > ROUND_TRIP_US_GOOD:
        return Finding(
            "WARN", check, f"a round trip takes {micros(taken)}", "check the network and the load"
        )
    return Finding("OK", check, f"a round trip takes {micros(taken)}")


def _timed(client: Client) -> float:
    start = time.perf_counter()
    client.view()
    return time.perf_counter() - start
