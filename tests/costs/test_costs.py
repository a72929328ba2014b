"""Costs of operations, in counts independent of any clock, and two coarse ratios: see `bounds`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.costs import (
    bounds,
    copies,
    fanout,
    grpc_calls,
    inside,
    instructions,
    ratios,
    system,
    task_map,
)
from tests.costs.engine_run import QUEUE, EngineRun
from tests.costs.operations import BATCH, BATCH_BYTES, Plan
from tests.costs.relay import Parser, Way
from tests.engine.rig import Asked
from weft.persistence import layout, segment_pointer
from weft.persistence.leveldb import LevelStore
from weft.persistence.store import Change
from weft.proto import wire

pytestmark = pytest.mark.process


# --- counts -----------------------------------------------------------------------------------


def test_python_wire_and_store(tmp_path: Path) -> None:
    found = inside.measure(tmp_path / "node", Plan())
    bounds.held(found)
    # A counter that counts nothing would satisfy every bound.
    assert found["batch push: bytes sent"] > BATCH_BYTES
    assert found["batch pop+ack: bytes answered"] > BATCH_BYTES
    assert found["batch push: bytes to the store"] > BATCH_BYTES
    # A commit of an ack and a push is one message and one synced write, as an ack alone is.
    for counter in ("messages on the wire", "store writes", "store writes, synced"):
        assert found[f"pop+commit: {counter}"] <= found[f"pop+ack: {counter}"] + bounds.STRAY
    for operation in ("push", "pop+ack", "pop+commit", "batch push", "batch pop+ack"):
        assert found[f"{operation}: store writes, synced"] >= 1, "answered before a synced write"
        assert found[f"{operation}: messages on the wire"] >= 2
        assert found[f"{operation}: Python calls, client"] > 10
        assert found[f"{operation}: Python calls, node"] > 10


def test_fan_out(tmp_path: Path) -> None:
    """Ten queues cost one payload, one sync, and about twice the calls of a push."""
    found = fanout.measure(tmp_path / "node")
    bounds.held(found)
    assert found["multicast to 10: store writes, synced"] >= 1, "answered before a synced write"
    assert found["multicast to 10: payloads stored"] == 1


def test_unary_calls_over_grpc(tmp_path: Path) -> None:
    """A call alone, and 32 calls that share one round: one synced write for all of them."""
    found = grpc_calls.measure(tmp_path / "node")
    bounds.held(found)
    at_once = f"of {grpc_calls.AT_ONCE}"
    for call in ("push", f"push {at_once}", "ack", f"ack {at_once}"):
        assert found[f"gRPC {call}: store writes, synced"] == 1, "answered before a synced write"
    for call in ("push", "pop", "ack"):
        alone = found[f"gRPC {call}: Python calls, node"]
        assert 10 < found[f"gRPC {call} {at_once}: Python calls, node"] < alone


def test_a_map_of_tasks(tmp_path: Path) -> None:
    """No object, key, message or write for a task: a batch has one of each."""
    found = task_map.measure(tmp_path / "node")
    bounds.held(found)
    assert found["map of 4,000: store writes, synced"] >= 2, "answered before a synced write"
    assert found["map of 4,000: Python calls a task, worker"] > 5


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[int, system.Caller]]:
    with system.pair(Plan(100, 30)) as both:
        yield both


def test_reads_and_writes_by_the_kernels_books(pair: tuple[int, system.Caller]) -> None:
    found = system.books(*pair)
    bounds.held(found)
    assert found["batch push: bytes written, node"] > BATCH_BYTES


def test_system_calls_by_strace(pair: tuple[int, system.Caller]) -> None:
    try:
        found = system.traced(*pair)
    except system.NoStrace as why:
        pytest.skip(str(why))
    bounds.held(found)
    for operation in ("push", "pop+ack", "batch push", "batch pop+ack"):
        assert found[f"{operation}: syncs, node"] >= 1, "acknowledged without a sync"
        assert found[f"{operation}: system calls, client"] > 2


def test_instructions_by_callgrind(tmp_path: Path) -> None:
    try:
        found = instructions.measure(tmp_path)
    except instructions.NoCallgrind as why:
        pytest.skip(str(why))
    bounds.held(found)
    assert found["batch push: instructions"] > found["push: instructions"] > 0


# --- copies -----------------------------------------------------------------------------------


def test_payloads_held_at_once(tmp_path: Path) -> None:
    found = copies.measure(tmp_path / "node")
    bounds.held(found)
    assert found["batch push: payloads held at once"] > 1
    assert found["batch pop+ack: payloads held at once"] > 1


def test_the_engine_copies_a_payload_once() -> None:
    """For the store, behind its checksum. A pop sends the very object that was received."""
    run = EngineRun()
    payload = wire.encode(wire.Payload(BATCH))
    written: list[Change] = []
    write = run.rig.store.write

    def spy(changes: list[Change], *, sync: bool) -> None:
        written.extend(changes)
        write(changes, sync=sync)

    run.rig.store.write = spy  # type: ignore[method-assign]
    run.rig.round(Asked(wire.Push(QUEUE, 7, 1, len(BATCH)), (payload,)))
    (stored,) = [value for key, value in written if key[:1] == layout.BODY]
    assert stored is not None
    assert stored.endswith(payload)
    (answered,) = run.rig.round(Asked(wire.Pop(QUEUE, len(BATCH))))
    assert answered.payload[0] is payload


def test_the_store_hands_a_large_payload_to_the_system_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = wire.encode(wire.Payload(BATCH))
    assert len(payload) >= segment_pointer.LARGE_BYTES
    seen: list[bytes] = []
    pwritev: Callable[[int, Sequence[bytes], int], int] = os.pwritev

    def spy(fd: int, buffers: Sequence[bytes], offset: int) -> int:
        seen.extend(buffers)
        return pwritev(fd, buffers, offset)

    store = LevelStore(tmp_path / "store", create=True)
    try:
        monkeypatch.setattr(os, "pwritev", spy)
        store.write([(layout.body(1, 1), payload)], sync=True)
        assert any(buffer is payload for buffer in seen)
    finally:
        store.close()


# --- ratios -----------------------------------------------------------------------------------


def test_ratios_to_the_machines_floors() -> None:
    found = ratios.measure()
    bounds.held(found)
    # The ratio may be less than one: the floor's round trip wakes threads, and a spinning client
    # does not. On a busy machine wake-ups are nearly all of the time.
    assert found[ratios.PUSH] > 0.1, "hardly anything was measured"
    assert found[ratios.CPU] > 1


# --- the instruments --------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_relay_reads_the_wire_however_it_is_cut(step: int) -> None:
    long = bytes([3]) + (300).to_bytes(8, "big") + bytes(300)
    stream = bytes(64) + b"\x04\x02xx" + long + b"\x00\x01z" + b"\x00\x00"
    way = Way()
    parser = Parser(way)
    for at in range(0, len(stream), step):
        parser.feed(stream[at : at + step])
    assert (way.messages, way.frames, way.bytes) == (2, 3, 309 + 3 + 2)


def test_the_trace_is_read_by_operation() -> None:
    trace = """\
11 fdatasync(3) = 0
12 poll([{fd=4}], 1, -1 <unfinished ...>
11 write(3, ""..., 9) = 9
12 <... poll resumed>) = 1
12 getppid() = 1
13 futex(0x1, FUTEX_WAIT) = 0
--- SIGCHLD ---
11 read(3) = 0
12 getppid() = 1
"""
    first, second = system.operations_of(trace, {11: "node", 12: "client"})
    assert first == {"node": {"fdatasync": 1, "write": 1}, "client": {"poll": 1}}
    assert second == {"node": {"read": 1}, "client": {}}


def test_a_figure_above_its_bound_is_named() -> None:
    name = "push: store writes, synced"
    bounds.held({name: bounds.BOUNDS[name]})
    with pytest.raises(AssertionError, match="push: store writes, synced: 2"):
        bounds.held({name: bounds.BOUNDS[name] + 1})
    with pytest.raises(AssertionError, match="without a bound"):
        bounds.held({"push: something new": 1})
