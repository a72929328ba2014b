"""Bugs that can be switched on, to see that the simulator and the directed tests catch them.

A node never sets one. Each is a single `if` where the rule that it breaks is kept, so that the rule
can be found by its mutant.
"""

from __future__ import annotations

from typing import Final


class Mutant:
    """Bugs that can be switched on, to see that the simulator catches them."""

    #: A lower epoch is obeyed like the promised one.
    no_fence = False
    #: A learner may become primary.
    unclean_election = False
    #: Acknowledged when the primary alone has it.
    early_ack = False
    #: Into the sync set before it is level, and without having been pending.
    grow_unlevel = False
    #: A promise is kept in memory only.
    volatile_promise = False
    #: What a voter promised and accepted is kept in memory only.
    forgetful_voter = False
    #: The driver does not wait for the disk.
    skipped_fsync = False
    #: A new primary keeps what it knows as committed and cuts off the rest.
    cut_to_commit = False
    #: A ballot may be used again after a restart.
    reused_ballot = False
    #: A state counts as whole from its first piece on.
    install_whole_early = False


NO_MUTANT: Final = Mutant()
