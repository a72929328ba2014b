"""Liveness connections: deaths are distinguished from departures, and strangers are refused."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from weft.errors import Unavailable
from weft.mpsc.liveness import WITNESS, GatewayLiveness, RankLiveness


@pytest.fixture
def lines() -> Iterator[GatewayLiveness]:
    made = GatewayLiveness("127.0.0.1")
    yield made
    made.close()


def soon(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def seen(line: RankLiveness) -> tuple[bool, bool]:
    line.poll()
    return line.death, line.gateway_gone


def test_a_death_is_told_to_all_others_and_a_departure_is_not(lines: GatewayLiveness) -> None:
    ranks = {rank: RankLiveness(lines.address, rank) for rank in (1, 2, 3)}
    lines.connect({1, 2, 3})
    ranks[1].leave()
    ranks[1].close()
    time.sleep(0.05)
    assert lines.poll() == set()
    assert seen(ranks[3]) == (False, False)
    ranks[2].close()
    soon(lambda: lines.poll() == {2})
    assert lines.dead == {2}
    soon(lambda: seen(ranks[3]) == (True, False))
    ranks[3].leave()
    ranks[3].close()
    lines.wait_for_the_end()
    assert lines.dead == {2}


def test_the_end_of_the_gateway_is_seen(lines: GatewayLiveness) -> None:
    rank, witness = RankLiveness(lines.address, 1), RankLiveness(lines.address, WITNESS)
    lines.connect({1})
    lines.poll()
    lines.close()
    soon(lambda: seen(rank) == (False, True))
    witness.wait_for_the_end()
    rank.leave()
    rank.close()
    witness.close()
    with pytest.raises(Unavailable, match="ranks need TCP"):
        RankLiveness(lines.address, 1)


def test_strangers_are_sent_away(lines: GatewayLiveness) -> None:
    host, port, token = lines.address.split()
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n")
        wrong = RankLiveness(f"{host} {port} {'0' * len(token)}", 1)
        right = RankLiveness(lines.address, 1)
        lines.connect({1})
        soon(lambda: seen(wrong) == (False, True))
        assert seen(right) == (False, False)
    wrong.close()
    right.close()
