"""Addresses of nodes: seeds as written by a user, addresses as reported by a node."""

from __future__ import annotations

import pytest

from weft import errors
from weft.client.routing.cluster_view import reach
from weft.client.routing.discovery import parse_servers


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        ("127.0.0.1:7700", ["127.0.0.1:7700"]),
        ("a:1, b:2 ,c", ["a:1", "b:2", "c:7700"]),
        (["a:1", "[::1]:2", "[::1]"], ["a:1", "[::1]:2", "[::1]:7700"]),
    ],
)
def test_servers_are_read(given: str | list[str], seeds: list[str]) -> None:
    assert parse_servers(given) == seeds


@pytest.mark.parametrize("given", ["", ",", [], "a:b", "a:0", "a:70000", ":5", "::1:5"])
def test_other_texts_are_refused(given: str | list[str]) -> None:
    with pytest.raises(errors.InvalidArgument, match="HOST:PORT"):
        parse_servers(given)


def test_without_servers_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SERVERS", "x:1,y:2")
    assert parse_servers(None) == ["x:1", "y:2"]
    monkeypatch.delenv("WEFT_SERVERS")
    assert parse_servers(None) == ["127.0.0.1:7700"]


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "*"])
def test_a_wildcard_means_the_host_by_which_the_node_was_reached(host: str) -> None:
    assert reach(f"{host}:7701", "example.org:7700") == "example.org:7701"
    assert reach("10.0.0.1:7701", "example.org:7700") == "10.0.0.1:7701"
