"""Planted bugs: switches that prove that the simulator and the directed tests catch each bug.

A node never sets a switch. Each bug is a single `if` beside the code of the broken rule, so that
the switch leads a reader to the rule.
"""

from __future__ import annotations

from typing import Final


class PlantedBugs:
    """Switches for planted bugs; all are off by default."""

    #: A replica obeys an epoch below its promise.
    no_fence = False
    #: A learner may become primary.
    unclean_election = False
    #: An entry is acknowledged when only the primary has the entry.
    early_ack = False
    #: A learner joins the sync set before being level, and without having been pending.
    grow_unlevel = False
    #: A promise is kept in memory only.
    volatile_promise = False
    #: A voter's promises and accepted views are kept in memory only.
    forgetful_voter = False
    #: The driver does not wait for the disk.
    skipped_fsync = False
    #: A new primary truncates its log to its commit index.
    cut_to_commit = False
    #: A ballot may be used again after a restart.
    reused_ballot = False
    #: A snapshot counts as complete from its first piece on.
    install_whole_early = False


NO_PLANTED_BUGS: Final = PlantedBugs()
