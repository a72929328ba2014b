"""Peers that connect while their keys are on the way to the node: held, and then let in."""

from __future__ import annotations

import pytest

from tests.contract.test_peer_edge import Edge, opened, say, silent
from weft.dht.messages import Ping
from weft.server.edges import peer_edge
from weft.server.security import zap_auth


def test_a_peer_that_connects_before_its_key_is_known_needs_no_second_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restarted node opens its port before it has read its view."""
    monkeypatch.setattr(peer_edge, "_HANDSHAKE_MS", 600_000)
    monkeypatch.setattr(peer_edge, "_STUCK_S", 600.0)
    monkeypatch.setattr(zap_auth, "HOLD_S", 600.0)
    one, two = Edge("one"), Edge("two")
    with opened(one, two):
        one.know(two)
        assert silent(one, two)
        two.know(one)
        say(one, two, Ping(1))


def test_strangers_that_wait_for_their_admission_do_not_keep_a_member_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zap_auth, "HELD_MAX", 2)
    strangers = [Edge(f"stranger {number}") for number in range(6)]
    one, two = Edge("one"), Edge("two")
    with opened(one, two, *strangers):
        two.know(one)
        for stranger in strangers:
            stranger.know(two)
        one.know(two)
        say(one, two, Ping(1))
        assert two.heard[-1] == ("one", [Ping(1)])
