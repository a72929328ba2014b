"""Every system's client behaves as the benchmark assumes, against its real server.

A system without its server or client on this machine is skipped; tests install nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers.race import available
from bench.peers.session import Flow, Session
from bench.peers.systems import ALL, System

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 2_500


@pytest.mark.parametrize("system", [each for each in ALL if not each.special], ids=lambda s: s.name)
def test_what_is_pushed_is_there_until_it_is_acked(system: System, tmp_path: Path) -> None:
    ready, skipped = available([system], may_fetch=False, tell=lambda _: None)
    if not ready:
        pytest.skip(skipped[system.name])
    with system.server(tmp_path) as server:
        server.start()
        assert server.version()
        admin = system.open(server.address)
        try:
            batches(system, server.address, admin, ["one"], visit=1000)
            batches(system, server.address, admin, [f"many-{i}" for i in range(5)], visit=100)
            single_calls(admin)
            for _ in range(100):  # the kernel counts in hundredths of a second
                if server.usage().cpu_s > 0:
                    break
                single_calls(admin)
        finally:
            admin.close()
        used = server.usage()
        assert used.cpu_s > 0
        assert used.rss_bytes > 0


@pytest.mark.parametrize("system", [each for each in ALL if each.fan_out], ids=lambda s: s.name)
def test_what_is_fanned_out_is_in_every_queue_until_it_is_acked(
    system: System, tmp_path: Path
) -> None:
    ready, skipped = available([system], may_fetch=False, tell=lambda _: None)
    if not ready:
        pytest.skip(skipped[system.name])
    queues = [f"fan-{number}" for number in range(4)]
    sends = Flow(queues, COUNT, 100, fan_out=True)
    takes = Flow(queues, COUNT * len(queues), 100, fan_out=True)
    with system.server(tmp_path) as server:
        server.start()
        admin = system.open(server.address, fan_out=True)
        consumer = system.open(server.address, fan_out=True)
        try:
            admin.create(queues)
            consumer.prepare(takes, takes=True)
            produce(system, server.address, sends)
            assert admin.left(queues) == takes.count
            consumer.consume(takes)
            assert admin.left(queues) == 0
            admin.drop(queues)
        finally:
            consumer.close()
            admin.close()


def batches(
    system: System, address: dict[str, object], admin: Session, queues: list[str], visit: int
) -> None:
    flow = Flow(queues, COUNT, 100, visit)
    admin.create(queues)
    produce(system, address, flow)
    assert admin.left(queues) == COUNT
    consumer = system.open(address)
    try:
        consumer.prepare(flow, takes=True)
        consumer.consume(flow)
    finally:
        consumer.close()
    assert admin.left(queues) == 0
    admin.drop(queues)


def produce(system: System, address: dict[str, object], flow: Flow) -> None:
    producer = system.open(address, fan_out=flow.fan_out)
    try:
        producer.prepare(flow, takes=False)
        producer.produce(flow)
    finally:
        producer.close()


def single_calls(session: Session) -> None:
    session.create(["calls"])
    for _ in range(3):
        session.push("calls", b"body")
    assert session.left(["calls"]) == 3
    for _ in range(3):
        session.pop_ack("calls")
    assert session.left(["calls"]) == 0
