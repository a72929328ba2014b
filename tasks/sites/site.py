"""The names of sites and of their queues.

A site is a machine, or a group of machines with one spill folder. Its queue holds the tasks that
wait for its workers, beside the queue of the app, which is the pool of all sites.
"""

from __future__ import annotations

import re
import socket
from typing import Final

from weft import limits
from weft.errors import InvalidArgument

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,29}")
_MARK: Final = ".at."
#: A queue of a site without tasks and workers is deleted by the cluster after this time.
QUEUE_IDLE_MS: Final = 24 * 3600 * 1000


def check_site(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            "a site has 1 to 30 letters, digits and '-', and begins with a letter or digit, not "
            f"{str(name)[:100]!r}"
        )
    return name


def default_site() -> str:
    """The name of this machine, up to its first dot."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname().partition(".")[0])[:30].strip("-")
    return name or "site"


def site_queue(queue: str, site: str) -> str:
    """The queue of a site, beside a queue of an app. Raises InvalidArgument for too long names."""
    name = f"{queue}{_MARK}{site}"
    try:
        limits.check_queue_name(name)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"the queue {queue} and the site {site} have too long names together: {error.message}"
        ) from None
    return name


def site_prefix(queue: str) -> str:
    """The beginning of the names of all queues of sites, beside a queue of an app."""
    return f"{queue}{_MARK}"


def site_of(queue: str) -> str:
    """The site of a queue; "" for a pool."""
    return queue.rpartition(_MARK)[2] if _MARK in queue else ""
