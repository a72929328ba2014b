"""When a run is over, and when not."""

from __future__ import annotations

from . import settled
from .stage import Stage


def test_nothing_is_drained_while_who_led_it_is_down() -> None:
    stage = Stage(3, 1)
    stage.make(stage.queue)
    assert settled.consumed(stage.world, stage.clients) == ""
    primary = stage.primary(0)
    stage.world.crash(primary)
    assert settled.consumed(stage.world, stage.clients).startswith(f"{primary.name} does not serve")
