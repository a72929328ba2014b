"""The app `near` at workers that never prefer another site: no site is full, no worker steals.

A worker that is paused for 0.2 s, as on a busy machine, loses tasks to an idle site: that is how
placement keeps all sites busy. A test that expects each task at its data runs this app.
"""

from __future__ import annotations

from tests.tasks.near import app
from weft.tasks.sites import placement

__all__ = ["app"]

vars(placement).update(STEAL_S=3600.0, ROOM_S=3600.0)
