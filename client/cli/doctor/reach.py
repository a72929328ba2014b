"""Whether a server can be reached, on both of its ports, and in what time."""

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
#: The standard health protocol in bytes: an empty question, and field 1 of the answer.
_METHOD: Final = "/grpc.health.v1.Health/Check"
_QUESTION: Final = b""
_STATES: Final = {b"": "UNKNOWN", b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}
#: Slower than this is not a machine nearby.
ROUND_TRIP_US_GOOD: Final = 20_000
ROUND_TRIPS: Final = 20


def check_health(server: str) -> Finding:
    """The public port: the gRPC health service."""
    import grpc

    check = f"{server} gRPC"
    channel_options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    credentials = Credentials.of(None, None)
    with credentials.channel(server, channel_options) as channel:
        # Raw bytes: the health stubs come with the server extra, and a client has none.
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
        return Finding("FAIL", check, f"it says {state}", "it is stopping: start it again")
    return Finding("OK", check, f"healthy, answered in {taken}")


def check_data_path(server: str, client: Client) -> Finding:
    """The ZeroMQ port: the best of a few round trips, as the first pays for the connection."""
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
            "WARN", check, f"a round trip takes {micros(taken)}", "look at the network, or the load"
        )
    return Finding("OK", check, f"a round trip takes {micros(taken)}")


def _timed(client: Client) -> float:
    start = time.perf_counter()
    client.view()
    return time.perf_counter() - start
