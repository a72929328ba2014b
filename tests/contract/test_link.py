"""Both links keep the same promises, against a peer that breaks them."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Sequence

import pytest

from tests.contract.link_rig import (
    LOOKUP,
    SOON_S,
    VALUE,
    Known,
    LinkRig,
    answer_all,
    ask,
    silent,
    soon,
)
from tests.contract.peer import Peer, lent, reply
from weft import errors
from weft.client.transport.async_link import DRAIN_BYTES_MAX, AsyncLink
from weft.client.transport.blocking_link import BlockingLink, run
from weft.client.transport.connection import READABLE
from weft.client.transport.link import Answered, Link
from weft.proto import wire


def test_a_call_carries_payloads_both_ways(link_rig: LinkRig) -> None:
    def echo(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        return [reply(call.rid, VALUE, *payload, b"more")]

    async def use(link: Link) -> Answered:
        return await link.call(LOOKUP, [b"one", b"two"], soon())

    answer, frames = link_rig.use(link_rig.peer(echo), use)
    assert answer == VALUE
    assert list(frames) == [b"one", b"two", b"more"]


def test_call_all_answers_in_the_order_of_asking(link_rig: LinkRig) -> None:
    held: list[list[bytes]] = []

    def backwards(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        assert isinstance(call.request, wire.Lookup)
        held.insert(0, reply(call.rid, wire.Value(call.request.key.encode())))
        return held if len(held) == 8 else []

    async def use(link: Link) -> list[Answered | Exception]:
        return await link.call_all([(wire.Lookup(str(n)), ()) for n in range(8)], soon())

    answers = link_rig.use(link_rig.peer(backwards), use)
    assert [a for a in answers if isinstance(a, Exception)] == []
    assert [a[0] for a in answers if not isinstance(a, Exception)] == [
        wire.Value(str(n).encode()) for n in range(8)
    ]


def test_a_node_that_starts_later_is_found(link_rig: LinkRig) -> None:
    peer = link_rig.peer(answer_all)
    peer.drop()
    timer = threading.Timer(0.4, peer.listen)
    timer.start()
    answer, _ = link_rig.use(peer, ask(LOOKUP))
    timer.join()
    assert answer == VALUE


def test_after_a_reconnect_the_call_is_sent_again_at_once(link_rig: LinkRig) -> None:
    peer = link_rig.peer(silent)

    def restart() -> None:
        peer.arrived.get(timeout=SOON_S)
        peer.drop()
        peer.on_call = answer_all
        peer.listen()

    restarter = threading.Thread(target=restart)
    restarter.start()
    began = time.monotonic()
    answer, _ = link_rig.use(peer, ask(wire.Push("q", 1, 2, 3)))
    restarter.join()
    assert answer == VALUE
    assert len({call.rid for call in peer.calls}) == 1
    assert {call.request for call in peer.calls} == {wire.Push("q", 1, 2, 3)}
    assert time.monotonic() - began < SOON_S / 2, "not by the attempt's own time limit"


def test_what_must_not_be_done_twice_is_not_sent_twice(link_rig: LinkRig) -> None:
    peer = link_rig.peer(silent)

    def restart() -> None:
        peer.arrived.get(timeout=SOON_S)
        peer.drop()
        peer.on_call = answer_all
        peer.listen()

    restarter = threading.Thread(target=restart)
    restarter.start()
    with pytest.raises(errors.ConnectionLost, match=r"append.*may or may not"):
        link_rig.use(peer, ask(wire.Append("k", b"v")))
    restarter.join()
    assert len(peer.calls) == 1


def test_an_attempt_without_answer_is_sent_again(link_rig: LinkRig) -> None:
    def third(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        return [reply(call.rid, VALUE)] if len(peer.calls) >= 3 else []

    peer = link_rig.peer(third)
    answer, _ = link_rig.use(peer, ask(LOOKUP), attempt_s=0.1)
    assert answer == VALUE
    assert len(peer.calls) >= 3  # a slow answer to the third may be overtaken by a fourth
    assert len({call.rid for call in peer.calls}) == 1


def test_a_pop_that_is_sent_again_waits_only_for_the_rest(link_rig: LinkRig) -> None:
    peer = link_rig.peer(silent)

    def restart() -> None:
        peer.arrived.get(timeout=SOON_S)
        time.sleep(0.3)
        peer.drop()
        peer.on_call = lambda call, _: [reply(call.rid, wire.Popped([]))]
        peer.listen()

    restarter = threading.Thread(target=restart)
    restarter.start()
    link_rig.use(peer, ask(wire.Pop("q", 1, 60_000)))
    restarter.join()
    first, again = (call.request for call in peer.calls)
    assert isinstance(first, wire.Pop)
    assert isinstance(again, wire.Pop)
    assert first.wait_ms == 60_000
    assert 20_000 < again.wait_ms <= 59_700


def test_the_deadline_ends_a_call_that_was_sent(link_rig: LinkRig) -> None:
    began = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded, match="may or may not have been stored"):
        link_rig.use(link_rig.peer(silent), ask(wire.Push("q", 1, 2, 3), 0.3))
    assert 0.3 <= time.monotonic() - began < SOON_S


def test_the_deadline_ends_a_call_that_nobody_took(link_rig: LinkRig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no listener, and no other process gets the port
        known = Known(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(errors.ConnectionLost, match="nothing was sent"):
            link_rig.use(known, ask(LOOKUP, 0.3))


def test_a_request_of_wrong_types_is_refused_here(link_rig: LinkRig) -> None:
    request = wire.Push("q", 1, 2, 3, delay_ms=1.5)  # type: ignore[arg-type]
    peer = link_rig.peer(answer_all)
    with pytest.raises(errors.InvalidArgument, match="push: delay_ms"):
        link_rig.use(peer, ask(request))
    assert peer.calls == []


def test_a_closed_link_refuses(link_rig: LinkRig) -> None:
    async def use(link: Link) -> None:
        link.close()  # type: ignore[attr-defined]
        with pytest.raises(errors.UsageError, match="closed"):
            await link.call(LOOKUP, (), soon())

    link_rig.use(link_rig.peer(answer_all), use)


def test_a_forked_child_is_told_to_connect(link_rig: LinkRig) -> None:
    async def use(link: Link) -> int:
        await link.call(LOOKUP, (), soon())
        child = os.fork()
        if child == 0:
            code = 1
            try:
                await link.call(LOOKUP, (), soon())
            except errors.UsageError as error:
                code = 0 if "fork" in error.message else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - the child ends at once
        return os.waitstatus_to_exitcode(status)

    assert link_rig.use(link_rig.peer(answer_all), use) == 0


def test_closing_wakes_a_thread_that_waits() -> None:
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            run(link.call(LOOKUP, (), soon()))
        except BaseException as error:
            ends.append(error)

    with Peer(silent).listen() as peer:
        link = BlockingLink(Known(peer.address))
        waiter = threading.Thread(target=wait)
        waiter.start()
        peer.arrived.get(timeout=SOON_S)
        began = time.monotonic()
        link.close()
        waiter.join()
    assert time.monotonic() - began < SOON_S / 4
    assert isinstance(ends[0], errors.UsageError)


def test_each_thread_has_its_own_line_and_closes_it() -> None:
    def work() -> None:
        for _ in range(20):
            assert run(link.call(LOOKUP, (), soon()))[0] == VALUE

    with Peer(answer_all).listen() as peer:
        link = BlockingLink(Known(peer.address))
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        work()
        assert len(link._lines) == 1, "the lines of threads that ended are gone"
        assert len(peer.calls) == 9 * 20
        link.close()


@pytest.mark.parametrize("answer_first", [False, True])
def test_a_cancelled_pop_gives_its_messages_back(answer_first: bool) -> None:
    """The answer comes after the cancellation, or just before the caller wakes."""

    def answer(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        if isinstance(call.request, wire.Pop):
            assert may_answer.wait(SOON_S)
            return [reply(call.rid, wire.Popped([lent(77)]), b"")]
        return [reply(call.rid, VALUE)]

    may_answer = threading.Event()

    async def main(peer: Peer) -> None:
        link = AsyncLink(Known(peer.address))
        await link.call(LOOKUP, (), soon())
        pop = asyncio.create_task(link.call(wire.Pop("q", 1), (), soon()))
        await asyncio.sleep(0)
        if answer_first:
            may_answer.set()
            while not link._connection.state() & READABLE:
                time.sleep(0.001)  # noqa: ASYNC251 - the loop must not see the answer yet
            link._wake()
        pop.cancel()
        may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await pop
        await link.call(LOOKUP, (), soon())
        await link.call(LOOKUP, (), soon())
        link.close()

    with Peer(answer).listen() as peer:
        asyncio.run(main(peer))
        nack = wire.Nack("q", [wire.Receipt(3, 4, 77)], counted=False)
        assert [call.request for call in peer.calls].count(nack) == 1


def test_a_cancelled_pop_stops_waiting_at_the_node() -> None:
    """Otherwise the abandoned pop would take the messages that its caller returns just then."""
    waiting: list[int] = []

    def answer(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        if isinstance(call.request, wire.Pop):
            waiting.append(call.rid)
            return []
        if isinstance(call.request, wire.StopWaiting):
            assert call.request.call == waiting.pop()
            return [reply(call.request.call, wire.Popped([])), reply(call.rid, wire.Done(0))]
        return [reply(call.rid, VALUE)]

    async def main(peer: Peer) -> None:
        link = AsyncLink(Known(peer.address))
        pop = asyncio.create_task(link.call(wire.Pop("q", 1, 60_000), (), soon()))
        while not waiting:  # noqa: ASYNC110 - the peer is another thread
            await asyncio.sleep(0.001)
        pop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pop
        assert not link.quiet
        await link.call(LOOKUP, (), soon())
        assert link.quiet
        link.close()

    with Peer(answer).listen() as peer:
        asyncio.run(main(peer))
        kinds = [type(call.request) for call in peer.calls]
        assert kinds == [wire.Pop, wire.StopWaiting, wire.Lookup]


def test_answers_are_read_some_at_a_time_and_not_by_who_asks() -> None:
    """Otherwise a caller that sends its next call would read in the answers of all others."""
    size, count = 128 * 1024, 40

    def large(call: wire.Call, payload: Sequence[bytes]) -> list[list[bytes]]:
        return [reply(call.rid, VALUE, bytes(size))]

    async def main(peer: Peer) -> None:
        link = AsyncLink(Known(peer.address))
        await link.call(LOOKUP, (), soon())
        works = [asyncio.ensure_future(link.call(LOOKUP, (), soon())) for _ in range(count)]
        await asyncio.sleep(0)  # let the calls be sent
        while not link._connection.state() & READABLE:
            time.sleep(0.001)  # noqa: ASYNC251 - the loop must not see the answers yet
        time.sleep(0.2)  # noqa: ASYNC251 - for more of them
        link._wake()
        under_way = len(link._pending_calls._calls)
        assert count - DRAIN_BYTES_MAX // size - 1 <= under_way < count
        another = link.call(LOOKUP, (), soon())
        another.send(None)
        assert len(link._pending_calls._calls) == under_way + 1
        another.close()
        await asyncio.gather(*works)
        link.close()

    with Peer(large).listen() as peer:
        asyncio.run(main(peer))
