"""The table of roles: complete, and the only way from role to role."""

from __future__ import annotations

import pytest

from weft.dht.role import TRANSITIONS, Role, RoleEvent, next_role


def test_every_role_is_in_the_table_and_every_event_happens_somewhere() -> None:
    assert set(TRANSITIONS) == set(Role)
    assert {event for events in TRANSITIONS.values() for event in events} == set(RoleEvent)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("event", RoleEvent)
def test_an_event_that_the_table_does_not_list_is_an_assertion_failure(
    role: Role, event: RoleEvent
) -> None:
    if event in TRANSITIONS[role]:
        assert next_role(role, event) is TRANSITIONS[role][event]
    else:
        with pytest.raises(AssertionError, match=role.value):
            next_role(role, event)


def test_no_way_leads_to_active_without_sealing_and_copying() -> None:
    for skipped in (Role.SEALING, Role.COPYING):
        reached, new = {Role.IDLE}, {Role.IDLE}
        while new:
            following = {after for role in new for after in TRANSITIONS[role].values()}
            new = following - reached - {skipped}
            reached |= new
        assert Role.ACTIVE not in reached


def test_a_newer_epoch_ends_every_lead() -> None:
    for role in set(Role) - {Role.IDLE}:
        assert next_role(role, RoleEvent.DEPOSED) is Role.IDLE
