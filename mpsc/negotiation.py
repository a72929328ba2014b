"""The options that the ranks of a gateway agree on before they share memory.

Ranks that size a window differently would overwrite each other, so the options of all ranks are
gathered and compared first. Under ``weft mpi-gateway`` the command has the options and passes them
to the program in the environment; there `weft.mpsc.open()` needs no argument.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from weft.errors import InvalidArgument, UsageError
from weft.limits import BODY_BYTES_MAX, KIB, MIB, check_queue_name, check_range

from .shape import CAPACITY_MAX, SEGMENT_BYTES_MAX

if TYPE_CHECKING:
    from mpi4py import MPI

#: Environment variable with the command's options for the program that it starts.
ENVIRONMENT: Final = "WEFT_MPI_TERMS"
#: Options as JSON: two queue names of at most 80 characters, a host's name, and numbers.
TERMS_BYTES_MAX: Final = 1 * KIB
#: Messages that one rank may hold at once.
AHEAD_MAX: Final = 4096
#: The algorithms that count the items taken from each sender and leave the word ``OWN``, which
#: holds the watermark, to the gateway. AMQueue does not count, dLTQueue uses ``OWN``, and an SPSC
#: queue has a single sender.
GATEWAY_ALGORITHMS: Final = ("sweepqueue", "slotqueue", "dltqueue2")


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The settings of one gateway; equal on all its ranks."""

    #: The queue that ranks send to; empty: ranks do not send.
    queue: str = ""
    #: The queue with the messages for the ranks; empty: none.
    source: str = ""
    #: The rank that is the gateway.
    gateway: int = 0
    #: The largest item that a rank sends, or the size of all items if sizes do not vary.
    item_bytes: int = 128
    variable: bool = True
    #: Items in one sender's ring; bounds the loss when the gateway dies.
    ring_cells: int = 8192
    #: Bytes for the messages that wait at one receiver; the default holds the largest message.
    ring_bytes: int = 8 * MIB
    #: Messages that one receiver has at once: few for long work, many for short.
    ahead: int = 64
    #: The queue algorithm between ranks and gateway: one of ``GATEWAY_ALGORITHMS``.
    algorithm: str = "sweepqueue"

    def __post_init__(self) -> None:
        if not self.queue and not self.source:
            raise UsageError(
                "name a queue: weft.mpsc.open(queue=...) for ranks that send, source=... for ranks "
                "that receive, or start the job with `weft mpi-gateway`, which names them"
            )
        for name in filter(None, (self.queue, self.source)):
            check_queue_name(name)
        check_range("gateway", self.gateway, 0, 2**31)
        check_range("item_bytes", self.item_bytes, 1, BODY_BYTES_MAX)
        check_range("ring_cells", self.ring_cells, 1, CAPACITY_MAX)
        check_range("ring_bytes", self.ring_bytes, 64, SEGMENT_BYTES_MAX)
        check_range("ahead", self.ahead, 1, AHEAD_MAX)
        if self.algorithm not in GATEWAY_ALGORITHMS:
            raise InvalidArgument(
                f"a gateway cannot use the queue algorithm {self.algorithm!r}: use one of "
                f"{', '.join(GATEWAY_ALGORITHMS)}"
            )

    def encode(self) -> str:
        return json.dumps(asdict(self))


def resolve(given: dict[str, Any]) -> GatewayOptions:
    """The options from the caller's arguments (None: not given), environment, and defaults."""
    told = {name: value for name, value in given.items() if value is not None}
    left = os.environ.get(ENVIRONMENT)
    return replace(GatewayOptions(**json.loads(left)), **told) if left else GatewayOptions(**told)


def agree(
    comm: MPI.Intracomm, options: GatewayOptions, host: str, patience: Callable[[], bool]
) -> list[str]:
    """Collective: every rank's host, by rank; raises on all ranks when their options differ.

    ``patience`` is called while other ranks have not come yet; it may raise to stop waiting.
    """
    from mpi4py import MPI

    from .mpi import wait_for_all

    check_range("gateway", options.gateway, 0, comm.Get_size() - 1)
    wait_for_all(comm, patience)
    mine = json.dumps([asdict(options), host]).encode()
    if len(mine) > TERMS_BYTES_MAX:
        raise InvalidArgument(
            f"the gateway options take {len(mine)} bytes, the maximum is {TERMS_BYTES_MAX}: use "
            "shorter queue names"
        )
    everyone = bytearray(TERMS_BYTES_MAX * comm.Get_size())
    comm.Allgather(
        [mine.ljust(TERMS_BYTES_MAX), TERMS_BYTES_MAX, MPI.BYTE],
        [everyone, TERMS_BYTES_MAX, MPI.BYTE],
    )
    starts = range(0, len(everyone), TERMS_BYTES_MAX)
    all_terms = [json.loads(everyone[start : start + TERMS_BYTES_MAX]) for start in starts]
    for rank, (other, _) in enumerate(all_terms):
        _compare(all_terms[0][0], other, rank)
    return [host for _, host in all_terms]


def _compare(first: dict[str, Any], other: dict[str, Any], rank: int) -> None:
    for field in fields(GatewayOptions):
        if first[field.name] != other[field.name]:
            raise InvalidArgument(
                f"{field.name} is {first[field.name]!r} on rank 0 and {other[field.name]!r} on "
                f"rank {rank}: open the gateway with the same value on all ranks, and pass the "
                "option of that name to `weft mpi-gateway`"
            )
