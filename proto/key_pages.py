"""Joins the pages of a scan from several nodes into one, for clients and nodes alike."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter

from .table_messages import KeyPage


def merged_page(pages: Sequence[KeyPage], limit: int) -> KeyPage:
    """The rows of the pages in the order of their keys.

    A page with `more` has no rows after its `after`, so the result ends at the first such key.
    """
    ends = [page.after for page in pages if page.more]
    end = min(ends) if ends else None
    rows = merge(
        *(zip(page.keys, page.values, page.versions, strict=True) for page in pages),
        key=itemgetter(0),
    )
    within = [row for row in islice(rows, limit + 1) if end is None or row[0] <= end]
    full, taken = len(within) > limit, within[:limit]
    last = taken[-1][0] if taken else ""
    after, more = last if full or end is None else end, full or end is not None
    return KeyPage(
        [row[0] for row in taken], [row[1] for row in taken], [row[2] for row in taken], after, more
    )
