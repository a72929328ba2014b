"""Answers that arrive late, twice, unreadable, or as failures: what the caller gets.

Blocking and asyncio.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contract.link_rig import LOOKUP, VALUE, Known, LinkRig, answer_all, ask, silent, soon
from tests.contract.peer import lent, reply
from weft import errors
from weft.client.routing import session
from weft.client.routing.router import ANY, Router
from weft.client.transport.link import Link
from weft.proto import wire


def test_a_second_answer_is_dropped(link_rig: LinkRig) -> None:
    def twice(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        assert isinstance(call.request, wire.Lookup)
        return [reply(call.rid, wire.Value(call.request.key.encode()))] * 2

    async def use(link: Link) -> list[wire.AnyAnswer]:
        return [(await link.call(wire.Lookup(str(n)), (), soon()))[0] for n in range(5)]

    answers = link_rig.use(link_rig.peer(twice), use)
    assert answers == [wire.Value(str(n).encode()) for n in range(5)]


def test_a_node_of_an_older_version_ends_the_call_that_it_does_not_know(link_rig: LinkRig) -> None:
    """Such a node cannot tell the call's number. The caller must not wait for the timeout."""

    def older(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        if isinstance(call.request, wire.Lookup):
            return [reply(call.rid, VALUE)]
        words = "not a request: Invalid value 'push_group' - at `$[2][0]`"
        return [reply(0, wire.Failure("PROTOCOL", words, False))]

    async def use(link: Link) -> wire.AnyAnswer:
        with pytest.raises(errors.ProtocolError, match="does not know the request push_group"):
            await link.call(wire.PushGroup("q", 1, 1, 1, group="a"), (b"",), soon())
        return (await link.call(LOOKUP, (), soon()))[0]

    assert link_rig.use(link_rig.peer(older), use) == VALUE


def test_messages_of_a_late_pop_are_given_back(link_rig: LinkRig) -> None:
    late: list[list[bytes]] = []

    def slow(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        if isinstance(call.request, wire.Pop):
            late.append(reply(call.rid, wire.Popped([lent(8), lent(9)]), b"", b""))
            return []
        if isinstance(call.request, wire.Nack):
            return []
        return [*late, reply(call.rid, VALUE)]

    async def use(link: Link) -> None:
        with pytest.raises(errors.DeadlineExceeded):
            await link.call(wire.Pop("q", 2), (), soon(0.2))
        await link.call(LOOKUP, (), soon())
        await link.call(LOOKUP, (), soon())

    peer = link_rig.peer(slow)
    link_rig.use(peer, use)
    given_back = [c.request for c in peer.calls if isinstance(c.request, wire.Nack)]
    receipts = [wire.Receipt(3, 4, 8), wire.Receipt(3, 4, 9)]
    assert given_back[0] == wire.Nack("q", receipts, counted=False)


def test_messages_of_a_second_answer_to_a_pop_are_given_back(link_rig: LinkRig) -> None:
    held: list[list[bytes]] = []

    def both(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        if isinstance(call.request, wire.Pop):
            held.append(reply(call.rid, wire.Popped([lent(len(peer.calls))]), b""))
            return held if len(held) == 2 else []
        return [reply(call.rid, VALUE)] if isinstance(call.request, wire.Lookup) else []

    async def use(link: Link) -> wire.AnyAnswer:
        answer, _ = await link.call(wire.Pop("q", 1), (), soon())
        await link.call(LOOKUP, (), soon())
        await link.call(LOOKUP, (), soon())
        return answer

    peer = link_rig.peer(both)
    assert link_rig.use(peer, use, attempt_s=0.2) == wire.Popped([lent(1)])
    assert wire.Nack("q", [wire.Receipt(3, 4, 2)], counted=False) in [
        call.request for call in peer.calls
    ]


@pytest.mark.parametrize(
    "rubbish", [b"", b"\xc1", b"not msgpack at all", wire.encode([99, ["nothing"]]), b"\x90"]
)
def test_rubbish_is_logged_and_does_no_harm(
    link_rig: LinkRig, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def noisy(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        return [[rubbish], reply(call.rid, VALUE)]

    answer, _ = link_rig.use(link_rig.peer(noisy), ask(LOOKUP))
    assert answer == VALUE
    assert "cannot read" in caplog.text


def test_an_answer_that_cannot_be_read_fails_its_call_at_once(link_rig: LinkRig) -> None:
    def strange(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        return [[wire.encode([call.rid, ["a_verb_of_the_future", 1]])]]

    with pytest.raises(errors.ProtocolError, match="one version"):
        link_rig.use(link_rig.peer(strange), ask(LOOKUP))


def test_a_node_that_moved_is_found_by_asking_the_seeds(link_rig: LinkRig) -> None:
    old, new = link_rig.peer(silent), link_rig.peer(answer_all)
    known = Known(old.address)
    old.drop()
    known.moved = new.address
    answer, _ = link_rig.use(known, ask(LOOKUP))
    assert answer == VALUE


def test_a_retriable_failure_is_retried_and_another_is_not(link_rig: LinkRig) -> None:
    def busy_twice(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        assert isinstance(call.request, wire.Lookup)
        if call.request.key == "bad":
            return [reply(call.rid, wire.Failure("INVALID_ARGUMENT", "no", False))]
        if len(peer.calls) < 3:
            return [reply(call.rid, wire.Failure("OVERLOADED", "later", True))]
        return [reply(call.rid, VALUE)]

    async def use(router: Router) -> wire.Value:
        value, _ = await session.ask(router, ANY, LOOKUP, wire.Value, soon())
        with pytest.raises(errors.InvalidArgument, match="no"):
            await session.ask(router, ANY, wire.Lookup("bad"), wire.Value, soon())
        return value

    peer = link_rig.peer(busy_twice)
    assert link_rig.route(peer, use) == VALUE
    assert len(peer.calls) == 4


def test_when_the_time_is_over_the_last_failure_is_raised(link_rig: LinkRig) -> None:
    def full(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        return [reply(call.rid, wire.Failure("QUEUE_FULL", "q is full", True))]

    async def use(router: Router) -> None:
        await session.ask(router, ANY, LOOKUP, wire.Value, soon(2.0))

    peer = link_rig.peer(full)
    with pytest.raises(errors.QueueFull, match="q is full"):
        link_rig.route(peer, use)
    assert len(peer.calls) > 2


def test_an_answer_of_another_kind_is_a_protocol_error(link_rig: LinkRig) -> None:
    async def use(router: Router) -> None:
        await session.ask(router, ANY, LOOKUP, wire.Swapped, soon())

    with pytest.raises(errors.ProtocolError, match="Value"):
        link_rig.route(link_rig.peer(answer_all), use)
