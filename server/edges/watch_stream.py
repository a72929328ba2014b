"""The gRPC method Watch: one waiting request for each node that leads watched partitions.

A client that does not read gets no further requests: `send` waits for flow control, and the nodes'
histories are bounded. After a failure of a request its partitions are asked again at their present
primaries, from the versions reached before.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from weft import limits
from weft.dht import placement
from weft.errors import InvalidArgument, from_code
from weft.proto import weft_pb2 as pb
from weft.proto import wire

from .grpc_method import parse
from .stream_call import StreamCall

#: The pause before failed partitions are asked again: a failover takes longer.
_PAUSE_S: Final = 0.1
_WAIT_MS: Final = limits.WAIT_MS_MAX
#: Asks for a partition's present version.
_NOW: Final = -1


async def watch(call: StreamCall) -> None:
    request = parse(await call.receive() or b"", pb.WatchRequest)
    if request.HasField("key") and request.prefix:
        raise InvalidArgument("key and prefix exclude each other: pass one of them")
    await WatchStream(call, request).run()


class WatchStream:
    def __init__(self, call: StreamCall, request: pb.WatchRequest) -> None:
        self._call = call
        self._exact = request.HasField("key")
        self._text = request.key if self._exact else request.prefix
        self._after = dict(request.after)
        self._positions: dict[int, int] = {}
        self._busy: set[int] = set()
        self._answers: deque[tuple[list[int], wire.AnyAnswer]] = deque()

    async def run(self) -> None:
        begun = False
        while True:
            await self._ask()
            while not self._answers:
                await self._call.wait(idle=True)
            failed = await self._take()
            if not begun and _NOW not in self._positions.values():
                begun = True
                await self._send(pb.WatchResponse(positions=self._positions))
            if failed:
                await self._call.wait(self._call.now() + _PAUSE_S, idle=True)

    async def _ask(self) -> None:
        """Requests the changes of all partitions without a request under way."""
        if self._positions and len(self._busy) == len(self._positions):
            return
        view, _ = await self._call.ask(wire.GetView(), (), wire.ViewInfo)
        if not self._positions:
            count = view.partitions
            numbers = [placement.of_text(self._text, count)] if self._exact else range(count)
            self._positions = {number: self._after.get(number, _NOW) for number in numbers}
        groups: dict[int, list[int]] = {}
        for number in self._positions:
            if number not in self._busy:
                groups.setdefault(view.primaries[number], []).append(number)
        for part in groups.values():
            self._submit(part)

    def _submit(self, numbers: list[int]) -> None:
        after = [self._positions[number] for number in numbers]
        request = wire.WatchKeys(numbers, self._text, after, _WAIT_MS, self._exact)
        self._busy.update(numbers)
        self._call.submit(request, (), lambda answer, _: self._answers.append((numbers, answer)))

    async def _take(self) -> bool:
        """Sends the changes of the answers; True if a request has failed for now."""
        failed = False
        while self._answers:
            numbers, answer = self._answers.popleft()
            self._busy.difference_update(numbers)
            if isinstance(answer, wire.Failure):
                if not answer.retriable:
                    raise from_code(answer.code, answer.message)
                failed = True
                continue
            assert isinstance(answer, wire.KeyChanges), f"Watch is not answered with {answer}"
            positions = dict(zip(numbers, answer.positions, strict=True))
            self._positions.update(positions)
            if answer.keys or answer.lost:
                await self._send(_response(answer, positions))
        return failed

    async def _send(self, response: pb.WatchResponse) -> None:
        await self._call.send(response.SerializeToString())


def _response(answer: wire.KeyChanges, positions: dict[int, int]) -> pb.WatchResponse:
    rows = zip(answer.keys, answer.values, answer.versions, strict=True)
    changes = [
        pb.TableChange(key=key, value=value, version=version) for key, value, version in rows
    ]
    return pb.WatchResponse(changes=changes, resync=bool(answer.lost), positions=positions)
