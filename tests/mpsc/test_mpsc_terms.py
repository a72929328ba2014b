"""The negotiation between ranks, and how a process learns its place."""

from __future__ import annotations

import pytest

from weft.errors import InvalidArgument, UsageError
from weft.mpsc.negotiation import ENVIRONMENT, GatewayOptions, resolve
from weft.mpsc.rank_launcher import RankPlace, place


def test_what_is_left_out_is_as_the_command_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve({"queue": "a", "source": None}) == GatewayOptions(queue="a")
    monkeypatch.setenv(ENVIRONMENT, GatewayOptions(queue="b", source="c", ahead=3).encode())
    assert resolve({"queue": None}) == GatewayOptions(queue="b", source="c", ahead=3)
    assert resolve({"ahead": 5}) == GatewayOptions(queue="b", source="c", ahead=5)


def test_a_gateway_without_a_queue_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    with pytest.raises(UsageError, match="name a queue"):
        resolve({})


@pytest.mark.parametrize(
    "wrong",
    [{"queue": "no spaces"}, {"ahead": 0}, {"ring_bytes": 8}, {"item_bytes": 0}, {"gateway": -1}],
)
def test_terms_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        GatewayOptions(**{"queue": "q", **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "environment",
    [
        {"PMI_RANK": "3", "PMI_SIZE": "8"},
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"},
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"},
    ],
)
def test_launchers_tell_a_process_its_place(environment: dict[str, str]) -> None:
    assert place(environment) == RankPlace(3, 8)


def test_a_process_without_a_place_is_refused() -> None:
    with pytest.raises(UsageError, match="no MPI launcher"):
        place({})
    with pytest.raises(UsageError, match="a rank of its own"):
        place({"PMI_RANK": "0", "PMI_SIZE": "1"})


def test_the_algorithm_is_chosen_by_name() -> None:
    assert GatewayOptions(queue="events").algorithm == "sweepqueue"
    assert GatewayOptions(queue="events", algorithm="slotqueue").algorithm == "slotqueue"
    for name in ("amqueue", "dltqueue", "slowqueue"):
        with pytest.raises(InvalidArgument, match="sweepqueue, slotqueue, dltqueue2"):
            GatewayOptions(queue="events", algorithm=name)
