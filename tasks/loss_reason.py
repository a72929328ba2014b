"""The reason of a lost task, for its error: written by the supervisor of the dead process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.errors import WeftError, WorkerLost
from weft.ids import MessageId

from .call import loss_key
from .outcome import TaskError

if TYPE_CHECKING:
    from .execution import TaskRun


async def explain_losses(session: ClientSession, app: str, runs: Sequence[TaskRun]) -> None:
    """Adds the reasons to the outcomes of lost tasks, where a supervisor has stored them."""
    for run in runs:
        error = run.outcome
        if type(error) is not TaskError or error.kind != WorkerLost.code:
            continue
        if reason := await reason_of(session, app, run.message.id):
            text = f"{error.text}. The last time: {reason}"
            run.outcome = msgspec.structs.replace(error, text=text)


async def reason_of(session: ClientSession, app: str, number: MessageId) -> str:
    """Why a process with the task has ended; empty if no supervisor has stored it."""
    try:
        reason = await KvCore(session).lookup(loss_key(app, number))
    except WeftError:
        return ""  # the error of the task has a general reason
    return "" if reason is None else reason.decode(errors="replace")
