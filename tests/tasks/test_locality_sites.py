"""The short form of `python -m tests.tasks.locality`: three sites in network namespaces.

Its bound on the makespan is wide, since other tests use the same cores; the program has the bound
of 1.3 x the ideal.
"""

from __future__ import annotations

import pytest

from tests.process.netns import why_not
from tests.tasks.locality import LOCAL_MIN, measure

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_tasks_run_at_their_data_and_a_full_site_gives_work_away() -> None:
    report = measure(90, 0.05)
    assert report["balanced"]["local share"] >= LOCAL_MIN, report
    assert min(report["one site"]["runs"].values()) >= 10, report
    assert report["one site"]["makespan / ideal"] <= 3, report
    assert sum(each["fetched"] for each in report["counts"].values()) >= 20, report
